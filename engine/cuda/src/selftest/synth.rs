//! Blocks made on the device against the same blocks made by `cudafast-quant`.

use cudafast_quant::{formats, synth};

use super::Bench;
use crate::{
    error::CudaError,
    launch::{self, Synth},
};

pub(super) fn checks(b: &mut Bench<'_>) -> Result<(), CudaError> {
    if !b.wanted("synth") {
        return Ok(());
    }
    for format in formats() {
        let blocks = 3001;
        let key = synth::tensor_key(b.rng.next(), "blk.7.attn_qkv.weight");
        let laws = [
            synth::Law::weights(format, 4, 2560),
            synth::Law::weights(format, 64, 1),
            synth::Law::around(b.rng.next() as i32 % 500, 300),
        ];
        for (law, first_block) in laws.into_iter().zip([0, 5_000_000_000, u64::from(u32::MAX) - 5]) {
            let mut want = vec![0; blocks * format.block_bytes];
            synth::fill(format, key, law, first_block, &mut want);
            let got = b.poisoned(want.len())?;
            let of = Synth { format, key, law, first_block, out: got.all() };
            launch::synth(b.stream, b.kernels, of)?;
            let got = b.stream.download(got.all())?;
            b.bits("synth", &format!("{} from block {first_block}", format.name), &got, &want);
        }
    }
    Ok(())
}
