//! The engine under test: fresh workers, one for each phase (benchd.md 6).

use bench_protocol::{MtpBlock, SpecConfig, SpecMode};
use bench_runner::{Interrupt, Launch, Sandbox, WorkerSession};

use crate::args::EngineArgs;
use crate::environment;
use crate::failure::Failure;

impl EngineArgs {
    /// How its workers are started.
    pub(crate) fn launch(&self, interrupt: Interrupt) -> Result<Launch, Failure> {
        if !self.engine.is_file() {
            return Err(Failure::NoEngine { path: self.engine.clone() });
        }
        if !self.weights.is_dir() {
            let what = format!("{} is no folder; name the folder that holds the model", self.weights.display());
            return Err(Failure::Flag { flag: "--weights", what });
        }
        let mut names: Vec<&str> = self.resources.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if let Some([twice, _]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Failure::Flag { flag: "--engine-resource", what: format!("`{twice}` is given twice") });
        }
        let mut launch = Launch::new(&self.engine, environment::of_workers(), interrupt);
        launch.weights = Some(self.weights.clone());
        launch.resources.clone_from(&self.resources);
        launch.forward_stderr = true;
        if self.no_sandbox {
            launch.sandbox = Sandbox::none();
        }
        Ok(launch)
    }
}

/// Does something in a worker of its own, which has ended when this returns.
pub(crate) fn in_fresh_worker<T>(
    launch: &Launch,
    doing: &str,
    work: impl FnOnce(&mut WorkerSession) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut session = launch.connect().map_err(Failure::session(doing))?;
    let done = work(&mut session)?;
    session.finish().map_err(Failure::session(doing))?;
    Ok(done)
}

/// Drafting at a depth; 0 is serial, for which nothing is sent.
pub(crate) fn spec(depth: u32) -> Option<SpecConfig> {
    (depth > 0).then(|| SpecConfig {
        mode: SpecMode::Mtp,
        mtp: Some(MtpBlock { depth: Some(depth) }),
        ..SpecConfig::default()
    })
}
