//! What the machine can do, measured with a number of threads: the ceilings of the shares in the table.

use std::collections::BTreeMap;

use cudafast_cpu::machine::{dot_rates, read_rates};
use cudafast_quant::Format;
use serde::Serialize;

use super::reads::Reads;
use crate::failure::Failure;
use crate::interrupt::Work;

/// Bytes read in a pass: several times the last cache of most machines, and little beside a model.
const READ_BYTES: usize = 1 << 30;

/// Passes of each probe.
const PASSES: usize = 5;

/// Rates, one for each pass of each probe. The best is the machine's: everything else on it only takes away.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    pub(crate) threads: usize,
    /// Plain reads of memory.
    pub(crate) read_bytes_s: Vec<f64>,
    /// The engine's own dot on one activation row with everything in the first cache, by number format of the weights.
    pub(crate) dot_macs_s: BTreeMap<&'static str, Vec<f64>>,
}

impl Machine {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads, read_bytes_s: Vec::new(), dot_macs_s: BTreeMap::new() }
    }

    /// Adds passes of every probe.
    pub(crate) fn measure(&mut self, formats: &[&'static Format], work: &Work) -> Result<(), Failure> {
        let failed = |source| Failure::Probe { source };
        self.read_bytes_s.extend(read_rates(self.threads, READ_BYTES, PASSES).map_err(failed)?);
        for format in formats {
            work.check()?;
            let rates = dot_rates(format, self.threads, 1, PASSES).map_err(failed)?;
            self.dot_macs_s.entry(format.name).or_default().extend(rates);
        }
        work.check()
    }

    pub(crate) fn read_rate(&self) -> f64 {
        best(&self.read_bytes_s)
    }

    pub(crate) fn dot_rate(&self, format: &str) -> f64 {
        self.dot_macs_s.get(format).map_or(0.0, |rates| best(rates))
    }

    /// Least seconds that a token's weights take to be read.
    pub(crate) fn read_seconds(&self, reads: &Reads) -> f64 {
        reads.bytes / self.read_rate()
    }

    /// Least seconds that a token's products take to be computed, each format at its own rate.
    pub(crate) fn dot_seconds(&self, reads: &Reads) -> f64 {
        let used = reads.formats.iter().filter(|(_, reads)| reads.macs > 0.0);
        used.map(|(format, reads)| reads.macs / self.dot_rate(format)).sum()
    }
}

fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::reads::FormatReads;

    #[test]
    fn the_best_pass_is_the_machines_rate_and_formats_add_up_at_their_own() {
        let dot_macs_s = BTreeMap::from([("Q8_0", vec![10.0, 50.0, 40.0]), ("Q4_K", vec![20.0])]);
        let machine = Machine { threads: 1, read_bytes_s: vec![90.0, 100.0], dot_macs_s };
        let part = |bytes, macs| FormatReads { bytes, macs };
        let formats =
            BTreeMap::from([("F32", part(100.0, 0.0)), ("Q4_K", part(60.0, 100.0)), ("Q8_0", part(40.0, 100.0))]);
        let reads = Reads { bytes: 200.0, macs: 200.0, formats };
        assert_eq!((machine.read_seconds(&reads), machine.dot_seconds(&reads)), (2.0, 7.0));
    }
}
