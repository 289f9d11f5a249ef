//! A track's id and the platform in it.

use std::fmt;

use super::ContractError;

/// What a track runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Platform {
    /// Apple silicon.
    Mlx,
    /// NVIDIA GPUs.
    Cuda,
    /// The embedded track (track-contract.md 12.5): no temperature reader is demanded, no GPU is looked at.
    Cpu,
}

impl Platform {
    pub(super) const WORDS: [(&str, Self); 3] = [("mlx", Self::Mlx), ("cuda", Self::Cuda), ("cpu", Self::Cpu)];

    /// The word in a track's id.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mlx => "mlx",
            Self::Cuda => "cuda",
            Self::Cpu => "cpu",
        }
    }
}

/// An id of the form `NAME-mlx|cuda|cpu-vN` (benchd.md 2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackId {
    text: String,
    platform: Platform,
}

impl TrackId {
    /// Reads the last two segments.
    pub fn parse(text: &str) -> Result<Self, ContractError> {
        let parts = || {
            let (rest, version) = text.rsplit_once('-')?;
            let (name, platform) = rest.rsplit_once('-')?;
            let number = version.strip_prefix('v')?;
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            let sound = !name.is_empty()
                && name.chars().all(plain)
                && !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit());
            let platform = Platform::WORDS.into_iter().find(|(word, _)| *word == platform)?.1;
            sound.then_some(platform)
        };
        let platform = parts().ok_or_else(|| ContractError::TrackId { id: text.into() })?;
        Ok(Self { text: text.into(), platform })
    }

    /// The whole id.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What it runs on.
    pub fn platform(&self) -> Platform {
        self.platform
    }
}

impl fmt::Display for TrackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_track_id_ends_in_platform_and_version() {
        let platform = |id: &str| TrackId::parse(id).map(|id| id.platform()).ok();
        assert_eq!(platform("qwen3.8-125b-a6b-cuda-v1"), Some(Platform::Cuda));
        assert_eq!(platform("qwen4exp-tiny-story-cpu-v1"), Some(Platform::Cpu));
        assert_eq!(platform("x-mlx-v12"), Some(Platform::Mlx));
        for bad in [
            "",
            "cuda-v1",
            "-cuda-v1",
            "x-cuda-v",
            "x-cuda-1",
            "x-rocm-v1",
            "x-CUDA-v1",
            "x-cuda-v1 ",
            "x/y-cuda-v1",
            "x-cuda-v1-y",
        ] {
            assert_eq!(platform(bad), None, "{bad}");
        }
    }
}
