use crate::{
    Error, ExpertStats, HeadProvenance, HelloDefect, PROTOCOL_VERSION, ResidentIdentity, Response, RunnerIdentity,
};

/// The first line of a worker: who it is and what it can (engine-protocol-v1.md 5, 6 and 7).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// What every response of the session carries.
    pub nonce: String,
    /// Which engine.
    pub backend: String,
    /// On what it runs.
    pub device: String,
    /// What it offers beyond the plain verbs.
    pub capabilities: Vec<String>,
    /// Modes it can run.
    pub spec_modes: Vec<String>,
    /// The draft head's files.
    pub head_provenance: Option<HeadProvenance>,
    /// Who runs the model.
    pub runner: Option<RunnerIdentity>,
    /// The process that holds the weights.
    pub resident: Option<ResidentIdentity>,
}

impl Hello {
    /// The line to send.
    pub fn into_response(self) -> Response {
        Response {
            expert_stats: Some(ExpertStats::default()),
            protocol_version: Some(PROTOCOL_VERSION),
            backend: Some(self.backend),
            device: Some(self.device),
            capabilities: Some(self.capabilities),
            spec_modes: Some(self.spec_modes),
            head_provenance: self.head_provenance,
            runner: self.runner,
            resident: self.resident,
            ..Response::ok(0, &self.nonce)
        }
    }

    /// Checks a first line as a benchmarker must: id 0, ok, a nonce, this version. What else is absent is empty.
    pub fn from_response(response: Response) -> Result<Self, Error> {
        let defect = |defect| Err(Error::Hello(defect));
        if response.id != 0 {
            return defect(HelloDefect::Id { found: response.id });
        }
        if !response.ok {
            return defect(HelloDefect::NotOk { error: response.error.unwrap_or("unknown error".to_owned()) });
        }
        let Some(nonce) = response.nonce.filter(|nonce| !nonce.is_empty()) else { return defect(HelloDefect::Nonce) };
        if response.protocol_version != Some(PROTOCOL_VERSION) {
            return defect(HelloDefect::Version { found: response.protocol_version });
        }
        Ok(Self {
            nonce,
            backend: response.backend.unwrap_or_default(),
            device: response.device.unwrap_or_default(),
            capabilities: response.capabilities.unwrap_or_default(),
            spec_modes: response.spec_modes.unwrap_or_default(),
            head_provenance: response.head_provenance,
            runner: response.runner,
            resident: response.resident,
        })
    }
}
