//! Every kernel against plain code on the host: what `cudafast selftest` runs.
//!
//! Inputs are fresh for each seed and outputs are poisoned before, so that a kernel which writes nothing fails. Where
//! the answer is defined bit for bit it is compared so; else against float64, with a bound that the check states.

mod attention;
mod gdn;
mod gemm;
mod head;
mod hyper;
mod matvec;
mod moe;
mod ngram;
mod plain;
mod router;
mod select;
mod sequence;
mod synth;
mod util;

use bytemuck::Pod;

use crate::{
    driver::{Context, DeviceBuffer, DeviceInfo, Event, Kernels, Stream},
    error::CudaError,
    launch::inject_fault,
};

/// What to check.
#[derive(Debug, Clone, Default)]
pub struct SelfTestOptions {
    /// Number of the device.
    pub device: u32,
    /// Seed of the inputs.
    pub seed: u64,
    /// Only operations whose name begins so; empty for all.
    pub only: String,
    /// Also time the operations on the model's shapes.
    pub timed: bool,
    /// Last, kill a kernel on purpose and check what callers then see. The process cannot use the device after.
    pub fault: bool,
    /// Launch with plain edges: a check that fails without and holds with it waits too late, or starts its follower too early.
    pub plain_edges: bool,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// Operation.
    pub op: String,
    /// Format and sizes.
    pub shape: String,
    /// Largest difference over the largest magnitude expected; 0 where bits were compared and agree.
    pub error: f64,
    /// Most it may be; 0 for bits.
    pub bound: f64,
    /// Whether it held.
    pub ok: bool,
    /// Where it is first off, or the time it took.
    pub note: String,
}

/// The outcome.
#[derive(Debug, Clone)]
pub struct SelfTest {
    /// What the checks ran on.
    pub device: DeviceInfo,
    /// Every check, in order.
    pub checks: Vec<Check>,
}

impl SelfTest {
    /// Runs the checks and calls `each` after every one.
    pub fn run(options: &SelfTestOptions, each: &mut dyn FnMut(&Check)) -> Result<Self, CudaError> {
        let context = Context::open(options.device)?;
        let (kernels, mut stream) = (Kernels::load(&context)?, Stream::new(&context)?);
        stream.set_programmatic(!options.plain_edges);
        let rng = Rng(options.seed ^ 0x9E37_79B9_7F4A_7C15);
        let mut bench =
            Bench { context: &context, kernels: &kernels, stream: &stream, rng, options, checks: vec![], each };
        for checks in [
            synth::checks,
            util::checks,
            matvec::checks,
            moe::checks,
            gemm::checks,
            hyper::checks,
            gdn::checks,
            attention::checks,
            select::checks,
            router::checks,
            ngram::checks,
            head::checks,
            sequence::checks,
        ] {
            checks(&mut bench)?;
        }
        if options.fault {
            bench.drill();
        }
        let checks = bench.checks;
        Ok(Self { device: context.info().clone(), checks })
    }

    /// Whether every check held, and there were any.
    pub fn ok(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.ok)
    }
}

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in -scale..scale.
    fn float(&mut self, scale: f32) -> f32 {
        ((self.next() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0) * scale
    }

    fn floats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.float(scale)).collect()
    }
}

/// What a check works with.
struct Bench<'a> {
    context: &'a Context,
    kernels: &'a Kernels,
    stream: &'a Stream,
    rng: Rng,
    options: &'a SelfTestOptions,
    checks: Vec<Check>,
    each: &'a mut dyn FnMut(&Check),
}

impl Bench<'_> {
    /// Whether this operation was asked for.
    fn wanted(&self, op: &str) -> bool {
        op.starts_with(&self.options.only) || self.options.only.starts_with(op)
    }

    /// Host values on the device.
    fn up<T: Pod>(&self, values: &[T]) -> Result<DeviceBuffer<T>, CudaError> {
        let buffer = DeviceBuffer::new(self.context, "an input of a check", values.len())?;
        self.stream.upload(values, buffer.all())?;
        Ok(buffer)
    }

    /// Room for an output, full of NaN.
    fn poisoned<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>, CudaError> {
        let buffer = DeviceBuffer::new(self.context, "an output of a check", len)?;
        self.stream.fill(buffer.all(), 0xFF)?;
        Ok(buffer)
    }

    fn report(&mut self, check: Check) {
        (self.each)(&check);
        self.checks.push(check);
    }

    /// Equal in every bit.
    fn bits<T: Pod>(&mut self, op: &str, shape: &str, got: &[T], want: &[T]) {
        let (got, want) = (bytemuck::cast_slice::<T, u8>(got), bytemuck::cast_slice::<T, u8>(want));
        let size = size_of::<T>();
        let off = got.chunks_exact(size).zip(want.chunks_exact(size)).position(|(g, w)| g != w);
        let ok = off.is_none() && got.len() == want.len() && !got.is_empty();
        let note = off.map_or(String::new(), |at| {
            let hex = |bytes: &[u8]| {
                bytes[at * size..(at + 1) * size].iter().rev().map(|b| format!("{b:02x}")).collect::<String>()
            };
            format!("value {at} of {} is {}, expected {}", want.len() / size, hex(got), hex(want))
        });
        let error = if ok { 0.0 } else { f64::NAN };
        self.report(Check { op: op.into(), shape: shape.into(), error, bound: 0.0, ok, note });
    }

    /// Within `bound` of the largest magnitude expected.
    fn close(&mut self, op: &str, shape: &str, got: &[f32], want: &[f64], bound: f64) {
        let largest = want.iter().fold(f64::MIN_POSITIVE, |m, w| m.max(w.abs()));
        let (mut error, mut at) = (0.0_f64, 0);
        for (i, (&g, w)) in got.iter().zip(want).enumerate() {
            let off = (f64::from(g) - w).abs() / largest;
            // A NaN is off by any measure.
            if off.is_nan() || off > error {
                (error, at) = (if off.is_nan() { f64::INFINITY } else { off }, i);
            }
        }
        let ok = error <= bound && got.len() == want.len() && !got.is_empty();
        let note =
            if ok { String::new() } else { format!("value {at}: {:?}, expected {:?}", got.get(at), want.get(at)) };
        self.report(Check { op: op.into(), shape: shape.into(), error, bound, ok, note });
    }

    /// A law that `held`, or how it was broken.
    fn holds(&mut self, op: &str, shape: &str, held: bool, broken: &str) {
        let note = if held { String::new() } else { broken.into() };
        self.report(Check {
            op: op.into(),
            shape: shape.into(),
            error: if held { 0.0 } else { f64::NAN },
            bound: 0.0,
            ok: held,
            note,
        });
    }

    /// Microseconds of one of `nodes` launches in a captured chain, least of `replays`. `queue(i)` queues number i.
    fn time(
        &self,
        nodes: usize,
        replays: usize,
        queue: impl Fn(usize) -> Result<(), CudaError>,
    ) -> Result<f64, CudaError> {
        let graph = self.stream.capture("a timed chain", vec![], |_| (0..nodes).try_for_each(&queue))?;
        let (start, end) = (Event::new(self.context)?, Event::new(self.context)?);
        let mut least = f64::INFINITY;
        for _ in 0..replays + 2 {
            start.record(self.stream)?;
            self.stream.replay(&graph)?;
            end.record(self.stream)?;
            self.stream.synchronize()?;
            least = least.min(end.since_us(&start)?);
        }
        Ok(least / nodes as f64)
    }

    /// A line with a time, which holds whatever it is.
    fn timing(&mut self, op: &str, shape: &str, us: f64, bytes: u64) {
        let note = format!("{us:.2} us a node, {:.2} MB, {:.2} TB/s", bytes as f64 / 1e6, bytes as f64 / us / 1e6);
        self.report(Check { op: format!("time {op}"), shape: shape.into(), error: 0.0, bound: 0.0, ok: true, note });
    }

    /// A fault must name its kernel, and end every call after it at once.
    fn drill(&mut self) {
        let launched = inject_fault(self.stream, self.kernels);
        let seen = launched.and_then(|()| self.stream.synchronize()).err();
        let named = matches!(&seen, Some(CudaError::Fault { during, .. }) if during.contains("util_fault"));
        let after = [self.stream.synchronize().err(), DeviceBuffer::<u8>::new(self.context, "after", 1).err()];
        let lost = after.iter().all(|e| matches!(e, Some(CudaError::Lost { .. }))) && self.context.fault().is_some();
        let note = seen.map_or("no fault was reported".into(), |e| e.to_string());
        let (op, shape) = ("fault".into(), "a kernel that traps".into());
        self.report(Check { op, shape, error: 0.0, bound: 0.0, ok: named && lost, note });
    }
}
