//! Refusals that have a name (benchd.md 5 to 11). The name is interface: scripts and tests look for it.

use std::fmt;

/// A rule that a run broke. The error that carries one says the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The fixture does not say what it is scored against.
    ScoredRegimePendingDeclaration,
    /// Neither a control leg nor a stored baseline.
    OfficialBaselinePendingCapture,
    /// No acceptance bands.
    AcceptanceBandsUndeclaredForTrack,
    /// No steps.
    WindowShapeUndeclaredForTrack,
    /// No model shape.
    ModelIdentityUndeclaredForTrack,
    /// Goldens are not authored while a track is scored by them.
    OfficialScoringArmed,
    /// A golden of a track without stored baselines has one.
    GoldenCarriesStoredBaseline,
    /// The control leg's golden is about another prompt.
    ControlGoldenPromptMismatch,
    /// Too many timed tokens are not the reference's choice.
    TimedDivergenceOverTolerance,
    /// A timed token is neither the reference's choice nor nearly.
    TimedDivergenceNotANearTie,
    /// The reference could not be replayed.
    TimedReplayFailed,
    /// A time or a ratio that is no number.
    ScoreNotFinite,
    /// Slower than the track allows.
    PerformanceFloorFailed,
    /// Outside the track's band around the control leg.
    AcceptanceBandFailed,
    /// Faster than the track believes.
    DecodeGainAboveCeiling,
    /// The control leg is not what this box was calibrated to.
    SerialControlLegOutsideBand,
    /// The passes of a calibration lie too far apart.
    CalibrationCvExceeded,
    /// The calibration is none.
    BaselineCalibrationInvalid,
    /// The calibration is another track's.
    BaselineCalibrationTrackMismatch,
    /// The calibration is another box's.
    BaselineCalibrationBoxMismatch,
    /// The calibration is another prompt's.
    BaselineCalibrationPromptMismatch,
    /// The calibration is of another reference tree.
    BaselineCalibrationCommitMismatch,
    /// A sealed document is not what was sealed.
    SealTampered,
    /// A path that no submission replaces.
    EditOutsideSurface,
    /// A path that could lead elsewhere.
    SubmissionPathEscapes,
    /// A link, a device, a privileged file.
    SubmissionEntryNotAFile,
    /// One name, two entries.
    SubmissionEntryTwice,
    /// A build tree, weights, a golden, a score.
    SubmissionHoldsArtifact,
    /// An editable path without a file.
    SubmissionPathMissing,
    /// More bytes than a cap allows.
    SurfaceBudgetExceeded,
}

impl Refusal {
    /// As it is printed and sealed.
    pub fn name(self) -> &'static str {
        match self {
            Self::ScoredRegimePendingDeclaration => "SCORED-REGIME-PENDING-DECLARATION",
            Self::OfficialBaselinePendingCapture => "OFFICIAL-BASELINE-PENDING-CAPTURE",
            Self::AcceptanceBandsUndeclaredForTrack => "ACCEPTANCE-BANDS-UNDECLARED-FOR-TRACK",
            Self::WindowShapeUndeclaredForTrack => "WINDOW-SHAPE-UNDECLARED-FOR-TRACK",
            Self::ModelIdentityUndeclaredForTrack => "MODEL-IDENTITY-UNDECLARED-FOR-TRACK",
            Self::OfficialScoringArmed => "official-scoring-armed",
            Self::GoldenCarriesStoredBaseline => "GOLDEN-CARRIES-STORED-BASELINE",
            Self::ControlGoldenPromptMismatch => "CONTROL-GOLDEN-PROMPT-MISMATCH",
            Self::TimedDivergenceOverTolerance => "TIMED-DIVERGENCE-OVER-TOLERANCE",
            Self::TimedDivergenceNotANearTie => "TIMED-DIVERGENCE-NOT-A-NEAR-TIE",
            Self::TimedReplayFailed => "TIMED-REPLAY-FAILED",
            Self::ScoreNotFinite => "SCORE-NOT-FINITE",
            Self::PerformanceFloorFailed => "PERFORMANCE-FLOOR-FAILED",
            Self::AcceptanceBandFailed => "ACCEPTANCE-BAND-FAILED",
            Self::DecodeGainAboveCeiling => "DECODE-GAIN-ABOVE-CEILING",
            Self::SerialControlLegOutsideBand => "SERIAL-CONTROL-LEG-OUTSIDE-BAND",
            Self::CalibrationCvExceeded => "CALIBRATION-CV-EXCEEDED",
            Self::BaselineCalibrationInvalid => "BASELINE-CALIBRATION-INVALID",
            Self::BaselineCalibrationTrackMismatch => "BASELINE-CALIBRATION-TRACK-MISMATCH",
            Self::BaselineCalibrationBoxMismatch => "BASELINE-CALIBRATION-BOX-MISMATCH",
            Self::BaselineCalibrationPromptMismatch => "BASELINE-CALIBRATION-PROMPT-MISMATCH",
            Self::BaselineCalibrationCommitMismatch => "BASELINE-CALIBRATION-COMMIT-MISMATCH",
            Self::SealTampered => "SEAL-TAMPERED",
            Self::EditOutsideSurface => "EDIT-OUTSIDE-SURFACE",
            Self::SubmissionPathEscapes => "SUBMISSION-PATH-ESCAPES",
            Self::SubmissionEntryNotAFile => "SUBMISSION-ENTRY-NOT-A-FILE",
            Self::SubmissionEntryTwice => "SUBMISSION-ENTRY-TWICE",
            Self::SubmissionHoldsArtifact => "SUBMISSION-HOLDS-ARTIFACT",
            Self::SubmissionPathMissing => "SUBMISSION-PATH-MISSING",
            Self::SurfaceBudgetExceeded => "SURFACE-BUDGET-EXCEEDED",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
