use std::path::PathBuf;

use crate::args::{Engine, WorkerArgs};

/// Whether this build can load a model itself.
const HAS_ENGINE: bool = cfg!(feature = "engine");

/// What answers a worker's requests (engine-protocol-v1.md 9, step 3).
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// An engine in another process.
    Resident { socket: PathBuf },
    /// An engine in this one.
    Engine { weights: PathBuf },
    /// None.
    Mock,
}

/// What was asked for and cannot be had.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("--engine: this build has no engine; build with `--features engine`")]
    NoEngine,
    #[error("--weights is missing: a .gguf file, a directory that holds one model, or `embedded`; or ask for --mock")]
    NoWeights,
}

impl Mode {
    pub(crate) fn of(args: WorkerArgs, resident_socket: Option<PathBuf>) -> Result<Self, Error> {
        Self::in_a_build(HAS_ENGINE, args, resident_socket)
    }

    fn in_a_build(has_engine: bool, args: WorkerArgs, resident_socket: Option<PathBuf>) -> Result<Self, Error> {
        if let Some(socket) = resident_socket {
            return Ok(Self::Resident { socket });
        }
        match args.engine {
            Engine::Mock => return Ok(Self::Mock),
            Engine::OfTheBuild if !has_engine => return Ok(Self::Mock),
            Engine::Demanded if !has_engine => return Err(Error::NoEngine),
            Engine::OfTheBuild | Engine::Demanded => {}
        }
        args.weights.map(|weights| Self::Engine { weights }).ok_or(Error::NoWeights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(engine: Engine, weights: Option<&str>) -> WorkerArgs {
        WorkerArgs { engine, weights: weights.map(PathBuf::from), device: None, nonce: None }
    }

    #[test]
    fn a_resident_comes_before_any_flag_and_any_build() {
        for has_engine in [false, true] {
            for engine in [Engine::OfTheBuild, Engine::Demanded, Engine::Mock] {
                let mode = Mode::in_a_build(has_engine, args(engine, Some("w")), Some("s".into()));
                assert_eq!(mode, Ok(Mode::Resident { socket: "s".into() }));
            }
        }
    }

    #[test]
    fn a_build_with_an_engine_loads_its_weights_and_is_a_mock_only_when_told() {
        let mode = |engine, weights| Mode::in_a_build(true, args(engine, weights), None);
        assert_eq!(mode(Engine::OfTheBuild, Some("w")), Ok(Mode::Engine { weights: "w".into() }));
        assert_eq!(mode(Engine::Demanded, Some("w")), Ok(Mode::Engine { weights: "w".into() }));
        assert_eq!(mode(Engine::OfTheBuild, None), Err(Error::NoWeights));
        assert_eq!(mode(Engine::Mock, Some("w")), Ok(Mode::Mock));
    }

    #[test]
    fn a_build_without_an_engine_is_a_mock_unless_an_engine_is_demanded() {
        let mode = |engine| Mode::in_a_build(false, args(engine, Some("w")), None);
        assert_eq!(mode(Engine::OfTheBuild), Ok(Mode::Mock));
        assert_eq!(mode(Engine::Mock), Ok(Mode::Mock));
        assert_eq!(mode(Engine::Demanded), Err(Error::NoEngine));
    }
}
