//! Stores an oracle's reference outputs: `cargo run -p cudafast-tests --example pack_oracle NAME.safetensors NAME.ref.gz`.

use std::{env, fs, io, process::ExitCode};

fn main() -> io::Result<ExitCode> {
    let paths: Vec<_> = env::args_os().skip(1).collect();
    let [from, to] = &paths[..] else {
        eprintln!("usage: pack_oracle FROM TO");
        return Ok(ExitCode::from(2));
    };
    fs::write(to, cudafast_tests::packed::pack(&fs::read(from)?))?;
    Ok(ExitCode::SUCCESS)
}
