//! Where files are published: a hub, a folder behind an address, a bucket.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusty_s3::{Credentials, S3Action as _, UrlStyle};
use ureq::Agent;
use ureq::config::RedirectAuthHeaders;
use ureq::tls::{RootCerts, TlsConfig};

use super::FetchError;

/// A source of files, and what it wants to see of whoever asks.
#[derive(Clone)]
pub struct Source(Kind);

#[derive(Clone)]
enum Kind {
    Http { base: String, token: Option<String>, agent: Agent },
    Folder(PathBuf),
    Bucket { bucket: rusty_s3::Bucket, credentials: Credentials, agent: Agent },
}

impl std::fmt::Debug for Source {
    /// Tokens, keys and addresses are nobody's business.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Kind::Http { .. } => "Source::Http",
            Kind::Folder(_) => "Source::Folder",
            Kind::Bucket { .. } => "Source::Bucket",
        })
    }
}

/// The hub as its clients' variables describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hub {
    /// `HF_ENDPOINT`.
    pub endpoint: String,
    /// `HF_HUB_CACHE`, else `hub` below `HF_HOME`, else `~/.cache/huggingface/hub`.
    pub cache: PathBuf,
    token: Option<String>,
}

impl Hub {
    /// Reads the variables with `get`, an empty one being none, and the token from `HF_TOKEN` or the file `token` of the hub's
    /// folder. Reads nothing else.
    pub fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Self {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let text = |name: &str| get(name).and_then(|value| value.into_string().ok());
        let home = get("HF_HOME").map(PathBuf::from).unwrap_or_else(|| {
            let cache = get("XDG_CACHE_HOME").map(PathBuf::from);
            let user = || get("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
            cache.unwrap_or_else(|| user().join(".cache")).join("huggingface")
        });
        let stored = || std::fs::read_to_string(home.join("token")).ok();
        let token = text("HF_TOKEN").or_else(stored).map(|token| token.trim().to_owned());
        Self {
            endpoint: text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into()),
            cache: get("HF_HUB_CACHE").map_or_else(|| home.join("hub"), PathBuf::from),
            token: token.filter(|token| !token.is_empty()),
        }
    }
}

/// Where a bucket is and how it is signed for.
#[derive(Clone)]
pub struct Bucket {
    /// Address of the service.
    pub endpoint: String,
    /// `auto` where the service has none.
    pub region: String,
    /// The bucket's name.
    pub name: String,
    /// The key's id.
    pub key: String,
    /// Its secret.
    pub secret: String,
}

impl Source {
    /// Files below an address: `https://`, `http://` or `file://`.
    pub fn base(url: &str) -> Result<Self, FetchError> {
        Self::http_or_file(url, None, "the base address")
    }

    /// A repository of the hub at a revision, a commit of 40 digits. A token goes to the hub and to no other host.
    pub fn hub(hub: &Hub, repository: &str, revision: &str) -> Result<Self, FetchError> {
        expect_repository(repository)?;
        expect_revision(revision)?;
        let base = format!("{}/{repository}/resolve/{revision}", hub.endpoint.trim_end_matches('/'));
        Self::http_or_file(&base, hub.token.clone(), "HF_ENDPOINT")
    }

    /// A bucket of a service that takes signatures of version 4.
    pub fn bucket(bucket: &Bucket) -> Result<Self, FetchError> {
        let what = "the bucket's endpoint";
        let https_only = is_https(&bucket.endpoint, what)?;
        let url = bucket.endpoint.parse().map_err(|_| FetchError::Address { what })?;
        let (name, region) = (bucket.name.clone(), bucket.region.clone());
        let found = rusty_s3::Bucket::new(url, UrlStyle::Path, name, region);
        let found = found.map_err(|_| FetchError::Address { what })?;
        let credentials = Credentials::new(&bucket.key, &bucket.secret);
        Ok(Self(Kind::Bucket { bucket: found, credentials, agent: agent(https_only) }))
    }

    fn http_or_file(url: &str, token: Option<String>, what: &'static str) -> Result<Self, FetchError> {
        if let Some(path) = url.strip_prefix("file://") {
            return match path.starts_with('/') {
                true => Ok(Self(Kind::Folder(path.into()))),
                false => Err(FetchError::Address { what }),
            };
        }
        let https_only = is_https(url, what)?;
        let base = url.trim_end_matches('/').to_owned();
        Ok(Self(Kind::Http { base, token, agent: agent(https_only) }))
    }

    /// Opens a file from byte `from` on.
    pub(super) fn open(&self, remote: &str, from: u64) -> Result<Opened, Refusal> {
        match &self.0 {
            Kind::Folder(folder) => open_file(folder.join(remote), from),
            Kind::Http { base, token, agent } => {
                let url = format!("{base}/{}", encoded(remote));
                request(agent, &url, token.as_deref(), from)
            }
            Kind::Bucket { bucket, credentials, agent } => {
                let url = bucket.get_object(Some(credentials), remote).sign(SIGNED_FOR);
                request(agent, url.as_str(), None, from)
            }
        }
    }
}

/// How long a signature is good for: as long as one request may be waited for.
const SIGNED_FOR: Duration = Duration::from_secs(3600);
/// A connection that says nothing for so long is dead; what has come is kept.
const SILENCE: Duration = Duration::from_secs(60);

/// What a source gives.
pub(super) struct Opened {
    pub(super) reader: Box<dyn Read>,
    /// Where it begins.
    pub(super) from: u64,
    /// All of the file, if the source says.
    pub(super) total: Option<u64>,
}

/// Why it gives nothing.
pub(super) enum Refusal {
    /// Worth another try.
    Transport(String),
    /// The part that is there is not a part of what the source has.
    BadPart(String),
    /// 401 or 403.
    Access(u16),
    /// For good.
    Final(String),
}

fn is_https(url: &str, what: &'static str) -> Result<bool, FetchError> {
    let host = |scheme: &str| url.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    match (host("https://"), host("http://")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(FetchError::Address { what }),
    }
}

#[expect(
    deprecated,
    reason = "the provider with post-quantum keys is a C library; what comes here is public, and pinned"
)]
fn provider() -> rustls::crypto::CryptoProvider {
    rustls::crypto::ring::default_provider()
}

fn agent(https_only: bool) -> Agent {
    let provider = Arc::new(provider());
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).unversioned_rustls_crypto_provider(provider);
    Agent::config_builder()
        .tls_config(tls.build())
        .https_only(https_only)
        .http_status_as_error(false)
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .accept_encoding("identity")
        .user_agent("cudafast")
        .timeout_connect(Some(SILENCE))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .build()
        .new_agent()
}

fn open_file(path: PathBuf, from: u64) -> Result<Opened, Refusal> {
    let opened = File::open(path).and_then(|mut file| {
        let total = file.metadata()?.len();
        file.seek(SeekFrom::Start(from.min(total)))?;
        Ok((file, total))
    });
    match opened {
        Ok((file, total)) => Ok(Opened { reader: Box::new(file), from: from.min(total), total: Some(total) }),
        Err(error) => Err(Refusal::Final(error.to_string())),
    }
}

fn request(agent: &Agent, url: &str, token: Option<&str>, from: u64) -> Result<Opened, Refusal> {
    let mut request = agent.get(url);
    if from > 0 {
        request = request.header("Range", format!("bytes={from}-"));
    }
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let response = request.call().map_err(refusal)?;
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let (begins, total) = match response.status().as_u16() {
        200 => (0, header("Content-Length").and_then(|text| text.trim().parse().ok())),
        206 => {
            let range = header("Content-Range").and_then(content_range);
            range.ok_or_else(|| Refusal::BadPart("it answers with a part and does not say which".into()))?
        }
        416 => return Err(Refusal::BadPart("it has no byte behind those that are there".into())),
        status @ (401 | 403) => return Err(Refusal::Access(status)),
        status @ (408 | 425 | 429 | 500..) => return Err(Refusal::Transport(format!("HTTP {status}"))),
        status => return Err(Refusal::Final(format!("HTTP {status}"))),
    };
    if begins != 0 && begins != from {
        return Err(Refusal::BadPart(format!("it answers from byte {begins} on, not {from}")));
    }
    Ok(Opened { reader: Box::new(response.into_body().into_reader()), from: begins, total })
}

/// `bytes FROM-TO/TOTAL`, the total `*` when it is not known.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
    let total = match total {
        "*" => None,
        text => Some(text.parse().ok()?),
    };
    (from <= to && total.is_none_or(|total| to < total)).then_some((from, total))
}

fn refusal(error: ureq::Error) -> Refusal {
    use ureq::Error;
    match error {
        // These quote the address.
        Error::BadUri(_) | Error::RequireHttpsOnly(_) => {
            Refusal::Final("it leads to an address that is none, or to one without encryption".into())
        }
        Error::TooManyRedirects | Error::RedirectFailed => Refusal::Final("it leads from address to address".into()),
        Error::Http(_) => Refusal::Final("its address cannot be asked for".into()),
        Error::Io(error) => Refusal::Transport(told(&error)),
        error => Refusal::Transport(error.to_string()),
    }
}

/// An error of a connection, without what its library adds.
pub(super) fn told(error: &io::Error) -> String {
    error.to_string().replace('\n', " ")
}

/// A path as part of an address.
fn encoded(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// `OWNER/NAME`.
pub(super) fn expect_repository(text: &str) -> Result<(), FetchError> {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    match text.split_once('/') {
        Some((owner, name)) if plain(owner) && plain(name) => Ok(()),
        _ => Err(FetchError::Repository { what: "repository", found: text.into(), form: "OWNER/NAME" }),
    }
}

/// A commit: names of branches move.
pub(super) fn expect_revision(text: &str) -> Result<(), FetchError> {
    match text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        true => Ok(()),
        false => Err(FetchError::Repository {
            what: "revision",
            found: text.into(),
            form: "of a commit, 40 lower-case digits; a branch may be another tomorrow",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(variables: &[(&str, &str)]) -> Hub {
        Hub::from_variables(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_hubs_variables_are_honoured_in_their_order() {
        let plain = hub(&[("HOME", "/nowhere/home"), ("HF_TOKEN", "")]);
        assert_eq!((plain.endpoint.as_str(), plain.token), ("https://huggingface.co", None));
        assert_eq!(plain.cache, PathBuf::from("/nowhere/home/.cache/huggingface/hub"));
        assert_eq!(hub(&[("HF_HOME", "/nowhere/h"), ("HOME", "/x")]).cache, PathBuf::from("/nowhere/h/hub"));
        assert_eq!(hub(&[("XDG_CACHE_HOME", "/nowhere/c")]).cache, PathBuf::from("/nowhere/c/huggingface/hub"));
        let all = hub(&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "/c"), ("HF_ENDPOINT", "http://e"), ("HF_TOKEN", " t\n")]);
        assert_eq!((all.cache, all.endpoint.as_str(), all.token.as_deref()), ("/c".into(), "http://e", Some("t")));
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), "stored\n").unwrap();
        assert_eq!(hub(&[("HF_HOME", home.path().to_str().unwrap())]).token.as_deref(), Some("stored"));
    }

    #[test]
    fn addresses_repositories_and_revisions_that_are_none_are_refused() {
        for bad in ["", "huggingface.co", "ftp://x", "https://", "http:///x", "file://x", "HTTPS//x"] {
            assert!(matches!(Source::base(bad), Err(FetchError::Address { .. })), "{bad}");
        }
        let (plain, revision) = (hub(&[]), "a".repeat(40));
        Source::hub(&plain, "owner/name.v1", &revision).unwrap();
        for bad in ["name", "a/b/c", "../x", "a/..", "a/ b", "/x", "a/"] {
            assert!(matches!(Source::hub(&plain, bad, &revision), Err(FetchError::Repository { .. })), "{bad}");
        }
        for bad in ["main", "", &"A".repeat(40), &"a".repeat(41)] {
            assert!(matches!(Source::hub(&plain, "a/b", bad), Err(FetchError::Repository { .. })), "{bad}");
        }
    }

    #[test]
    fn a_range_is_read_whole_or_not_at_all() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(content_range("bytes 5-9/*"), Some((5, None)));
        for bad in ["", "bytes 5-9", "bytes 9-5/10", "bytes 5-10/10", "items 5-9/10", "bytes -9/10", "bytes 5-9/x"] {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_path_in_an_address_is_encoded_and_no_secret_is_shown() {
        assert_eq!(encoded("a b/ä.gguf"), "a%20b/%C3%A4.gguf");
        let hub = hub(&[("HF_TOKEN", "secret")]);
        let source = Source::hub(&hub, "a/b", &"a".repeat(40)).unwrap();
        assert_eq!(format!("{source:?}"), "Source::Http");
    }
}
