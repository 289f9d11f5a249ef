//! Fetching from sources that drop, lie about lengths, serve other bytes, redirect and refuse (track-contract.md 5).
#![allow(clippy::unwrap_used)] // helpers of tests are not tests to clippy

mod server;

use std::ffi::OsString;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use bench_pins::{
    Bucket, Digest, Event, FetchError, Fetched, Hub, Item, Pin, Place, Plan, Source, fetch, sha256, verify_staged,
};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::server::{Answer, Server};

const PATH: &str = "a model/part 1.gguf";
const URL: &str = "/base/a%20model/part%201.gguf";

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

fn digest(bytes: &[u8]) -> Digest {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    sha256(file.path(), &|_| ControlFlow::Continue(())).unwrap().unwrap().sha256
}

fn item(path: &str, bytes: &[u8]) -> Item {
    Item::same_path(Pin { path: path.into(), bytes: Some(bytes.len() as u64), sha256: digest(bytes) })
}

fn go_on(_: Event<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// One file of a source that misbehaves, and a folder for it.
struct Setup {
    server: Server,
    folder: TempDir,
    bytes: Vec<u8>,
}

impl Setup {
    fn new(answer: Answer) -> Self {
        let (server, bytes) = (Server::start(), body(5000));
        server.put(URL, &bytes, answer);
        Self { server, folder: tempfile::tempdir().unwrap(), bytes }
    }

    fn run(&self, retries: u32) -> Result<Fetched, FetchError> {
        let source = Source::base(&format!("{}/base/", self.server.address)).unwrap();
        let (items, place) = ([item(PATH, &self.bytes)], Place::folder_at(self.folder.path()));
        fetch(&Plan { retries, delay: Duration::ZERO, ..Plan::new(&items, &source, &place) }, &go_on)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join(PATH)
    }

    fn partial(&self) -> Option<u64> {
        Some(fs::metadata(self.file().with_added_extension("partial")).ok()?.len())
    }

    fn expect_whole(&self) {
        assert_eq!(fs::read(self.file()).unwrap(), self.bytes);
        assert_eq!(self.partial(), None);
        assert!(!self.folder.path().join(".setup-lock").exists());
    }

    fn expect_nothing(&self) {
        assert!(!self.file().exists() && self.partial().is_none());
        assert!(!self.folder.path().join(".setup-lock").exists());
    }
}

#[test]
fn a_dropped_connection_goes_on_where_it_stopped() {
    let setup = Setup::new(Answer::DropAfter(1700));
    let fetched = setup.run(0).unwrap();
    assert_eq!((fetched.downloaded, fetched.hashed, fetched.trusted), (1, 0, 0));
    setup.expect_whole();
    let ranges: Vec<_> = setup.server.asked().into_iter().map(|asked| asked.range).collect();
    assert_eq!(ranges, [None, Some("bytes=1700-".into()), Some("bytes=3400-".into())]);
}

#[test]
fn a_source_that_brings_nothing_more_is_given_up_and_what_came_is_kept() {
    let setup = Setup::new(Answer::Then(Box::new(Answer::DropAfter(1200)), Box::new(Answer::Status(503))));
    let error = setup.run(2).unwrap_err();
    assert!(matches!(error, FetchError::Transport { have: 1200, bytes: 5000, .. }), "{error}");
    assert_eq!((setup.partial(), setup.server.asked().len()), (Some(1200), 4));
    assert!(!setup.file().exists());
    setup.server.put(URL, &setup.bytes, Answer::Honest);
    setup.run(0).unwrap();
    setup.expect_whole();
    assert_eq!(setup.server.asked()[0].range.as_deref(), Some("bytes=1200-"));
}

#[test]
fn one_that_breaks_off_at_one_place_for_ever_is_given_up() {
    // It knows no parts, so each try begins anew and ends at the same byte.
    let setup = Setup::new(Answer::Then(Box::new(Answer::DropAfter(900)), Box::new(Answer::AnnounceMore(1))));
    assert!(matches!(setup.run(1).unwrap_err(), FetchError::DownloadedSize { found: 5001, .. }));
    setup.expect_nothing();
    let setup = Setup::new(Answer::DropAfter(0));
    assert!(matches!(setup.run(3).unwrap_err(), FetchError::Transport { have: 0, .. }));
    assert_eq!(setup.server.asked().len(), 4);
}

#[test]
fn lengths_that_are_not_the_pinned_one_are_discarded() {
    for answer in [Answer::Longer(1), Answer::AnnounceMore(10), Answer::EndlessBy(1), Answer::EndlessBy(100_000)] {
        let setup = Setup::new(answer.clone());
        let error = setup.run(1).unwrap_err();
        assert!(matches!(error, FetchError::DownloadedSize { pinned: 5000, .. }), "{answer:?}: {error}");
        assert!(error.to_string().contains("pinned 5000; discarded"), "{error}");
        setup.expect_nothing();
    }
    let short = Setup::new(Answer::Honest);
    short.server.put(URL, &short.bytes[..4000], Answer::Honest);
    assert!(matches!(short.run(1).unwrap_err(), FetchError::DownloadedSize { found: 4000, .. }));
    short.expect_nothing();
}

#[test]
fn other_bytes_of_the_right_number_are_discarded_by_their_hash() {
    let setup = Setup::new(Answer::OtherBytes);
    let error = setup.run(0).unwrap_err();
    assert!(matches!(error, FetchError::DownloadedHash { .. }), "{error}");
    assert!(error.to_string().contains("has sha256") && error.to_string().contains("discarded"), "{error}");
    setup.expect_nothing();
    // A part that was wrong from an earlier try spoils the whole, which the next run begins anew.
    fs::create_dir_all(setup.file().parent().unwrap()).unwrap();
    fs::write(setup.file().with_added_extension("partial"), [0; 10]).unwrap();
    setup.server.put(URL, &setup.bytes, Answer::Honest);
    assert!(matches!(setup.run(0).unwrap_err(), FetchError::DownloadedHash { .. }));
    setup.run(0).unwrap();
    setup.expect_whole();
}

#[test]
fn a_source_that_knows_no_parts_or_gives_others_is_begun_anew() {
    for answer in [Answer::WholeOnly, Answer::OtherPart, Answer::NoPart] {
        let setup = Setup::new(Answer::Then(Box::new(Answer::DropAfter(100)), Box::new(answer.clone())));
        setup.run(1).unwrap_or_else(|error| panic!("{answer:?}: {error}"));
        setup.expect_whole();
    }
}

#[test]
fn redirects_are_followed_and_a_circle_is_not() {
    let setup = Setup::new(Answer::Redirect("/elsewhere".into()));
    setup.server.put("/elsewhere", &setup.bytes, Answer::DropAfter(3000));
    setup.run(0).unwrap();
    setup.expect_whole();
    let asked = setup.server.asked();
    assert_eq!(asked[1].path, "/elsewhere");
    assert_eq!(asked[3].range.as_deref(), Some("bytes=3000-"), "the range follows the redirect");
    let circle = Setup::new(Answer::Redirect(URL.into()));
    let error = circle.run(0).unwrap_err();
    assert!(matches!(error, FetchError::Source { .. }), "{error}");
    circle.expect_nothing();
}

#[test]
fn refusals_of_the_source_are_told_at_once_and_without_its_address() {
    for (status, access) in [(401, true), (403, true), (404, false), (400, false)] {
        let setup = Setup::new(Answer::Status(status));
        let error = setup.run(5).unwrap_err();
        assert_eq!(matches!(error, FetchError::Access { .. }), access, "{error}");
        assert!(error.to_string().contains(&status.to_string()) && !error.to_string().contains("127.0.0.1"), "{error}");
        assert_eq!(setup.server.asked().len(), 1, "{status}");
    }
}

#[test]
fn the_hubs_token_goes_to_the_hub_and_nowhere_else_and_its_cache_has_the_hubs_layout() {
    let (hub, mirror, home) = (Server::start(), Server::start(), tempfile::tempdir().unwrap());
    let (bytes, revision) = (body(3000), "0123456789abcdef0123456789abcdef01234567");
    let url = format!("/owner/name/resolve/{revision}/sub/model.gguf");
    hub.put(&url, &bytes, Answer::Redirect(format!("{}/blob", mirror.address.replace("127.0.0.1", "localhost"))));
    mirror.put("/blob", &bytes, Answer::Honest);
    let variables =
        [("HF_ENDPOINT", hub.address.as_str()), ("HF_TOKEN", "secret"), ("HF_HOME", home.path().to_str().unwrap())];
    let known = Hub::from_variables(|name| {
        variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
    });
    let (source, place) = (
        Source::hub(&known, "owner/name", revision).unwrap(),
        Place::hub_cache(&known.cache, "owner/name", revision).unwrap(),
    );
    let items = [item("sub/model.gguf", &bytes)];
    let plan = Plan { retries: 0, delay: Duration::ZERO, ..Plan::new(&items, &source, &place) };
    let fetched = fetch(&plan, &go_on).unwrap();
    assert_eq!(hub.asked()[0].authorization.as_deref(), Some("Bearer secret"));
    assert_eq!(mirror.asked()[0].authorization, None);

    let model = home.path().join("hub/models--owner--name");
    let link = model.join("snapshots").join(revision).join("sub/model.gguf");
    assert_eq!(fetched.folder.join("sub/model.gguf"), link);
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("../../../blobs").join(digest(&bytes).to_string()));
    assert_eq!(fs::read(&link).unwrap(), bytes);
    // What the cache has under another revision is linked, hashed once, and then vouched for.
    let place = Place::hub_cache(&known.cache, "owner/name", &"f".repeat(40)).unwrap();
    let plan = Plan { place: &place, ..plan };
    assert_eq!(fetch(&plan, &go_on).unwrap().downloaded, 0);
    assert_eq!(fs::read(place.folder().join("sub/model.gguf")).unwrap(), bytes);
    assert!(hub.asked().is_empty());
}

#[test]
fn a_bucket_is_asked_with_a_signature_and_its_secret_stays_here() {
    let (server, folder, bytes) = (Server::start(), tempfile::tempdir().unwrap(), body(100));
    server.put("/goldens/botany/live.golden.json", &bytes, Answer::Honest);
    let source = Source::bucket(&Bucket {
        endpoint: server.address.clone(),
        region: "auto".into(),
        name: "goldens".into(),
        key: "KEYID".into(),
        secret: "hidden".into(),
    });
    let (source, place) = (source.unwrap(), Place::folder_at(folder.path()));
    let items = [Item { remote: "botany/live.golden.json".into(), ..item("live.golden.json", &bytes) }];
    fetch(&Plan { retries: 0, ..Plan::new(&items, &source, &place) }, &go_on).unwrap();
    let asked = &server.asked()[0].path;
    for part in ["X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Credential=KEYID%2F", "X-Amz-Signature="] {
        assert!(asked.contains(part), "{asked}");
    }
    assert!(!asked.contains("hidden"));
    server.put("/goldens/botany/live.golden.json", &bytes, Answer::Status(403));
    fs::remove_file(folder.path().join("live.golden.json")).unwrap();
    let error = fetch(&Plan { retries: 0, ..Plan::new(&items, &source, &place) }, &go_on).unwrap_err().to_string();
    assert!(!error.contains("Signature") && !error.contains("127.0.0.1"), "{error}");
}

#[test]
fn work_that_is_stopped_is_taken_up_again() {
    let setup = Setup::new(Answer::Honest);
    let source = Source::base(&format!("{}/base", setup.server.address)).unwrap();
    let (items, place) = ([item(PATH, &setup.bytes)], Place::folder_at(setup.folder.path()));
    let plan = Plan { delay: Duration::ZERO, ..Plan::new(&items, &source, &place) };
    let stop = |event: Event<'_>| match event {
        Event::Received(1..) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    assert!(matches!(fetch(&plan, &stop), Err(FetchError::Stopped)));
    assert!(!setup.file().exists() && !setup.folder.path().join(".setup-lock").exists());
    let told = Mutex::new(Vec::new());
    let tell = |event: Event<'_>| {
        told.lock().unwrap().push(format!("{event:?}"));
        ControlFlow::Continue(())
    };
    fetch(&plan, &tell).unwrap();
    setup.expect_whole();
    let told = told.into_inner().unwrap();
    assert!(told[0].starts_with("Downloading") && told.iter().any(|event| event.starts_with("Downloaded")), "{told:?}");
}

/// The ten cases of track-contract.md 5: a `file://` source with five small files and blanks in their paths.
struct Five {
    source: TempDir,
    target: TempDir,
    items: Vec<Item>,
}

impl Five {
    fn new() -> Self {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let items = (0..5).map(|n| {
            let (path, bytes) = (format!("shard {n}.gguf"), body(100 + n));
            let remote = format!("UD Q4/{path}");
            fs::create_dir_all(source.path().join("UD Q4")).unwrap();
            fs::write(source.path().join(&remote), &bytes).unwrap();
            Item { remote, ..item(&path, &bytes) }
        });
        let items = items.collect();
        Self { items, source, target }
    }

    fn folder(&self) -> PathBuf {
        self.target.path().join("reference weights")
    }

    fn fill(&self) -> Result<Fetched, FetchError> {
        let source = Source::base(&format!("file://{}", self.source.path().display())).unwrap();
        let place = Place::folder_at(self.folder());
        fetch(&Plan { retries: 0, ..Plan::new(&self.items, &source, &place) }, &go_on)
    }

    fn markers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(".verified-")).collect()
    }

    fn counts(&self) -> (usize, usize, usize) {
        let Fetched { downloaded, hashed, trusted, .. } = self.fill().unwrap();
        (downloaded, hashed, trusted)
    }
}

#[test]
fn a_folder_is_filled_once_and_then_vouched_for_by_its_marker() {
    let five = Five::new();
    assert_eq!(five.counts(), (5, 0, 0));
    let markers = five.markers();
    assert_eq!(fs::read_to_string(&markers[0]).unwrap().lines().count(), 5);
    let partial = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "partial");
    assert!(!fs::read_dir(five.folder()).unwrap().any(|entry| partial(&entry.unwrap().path())));
    // The source is gone, and nobody asks for it.
    fs::remove_dir_all(five.source.path().join("UD Q4")).unwrap();
    assert_eq!(five.counts(), (0, 0, 5));
    fs::remove_file(&markers[0]).unwrap();
    assert_eq!(five.counts(), (0, 5, 0));
}

#[test]
fn a_truncated_file_is_the_only_one_fetched_again() {
    let five = Five::new();
    five.fill().unwrap();
    fs::write(five.folder().join("shard 3.gguf"), b"short").unwrap();
    assert_eq!(five.counts(), (1, 4, 0));
}

#[test]
fn a_file_rewritten_at_its_size_is_refused_by_its_hash_and_not_deleted() {
    let five = Five::new();
    five.fill().unwrap();
    fs::write(five.folder().join("shard 2.gguf"), vec![9; 102]).unwrap();
    let error = five.fill().unwrap_err();
    assert!(error.to_string().starts_with("sha256 mismatch for shard 2.gguf: staged "), "{error}");
    assert!(five.folder().join("shard 2.gguf").exists());
}

#[test]
fn a_corrupt_source_leaves_nothing_behind_and_other_pins_do_not_trust_the_marker() {
    let five = Five::new();
    fs::write(five.source.path().join("UD Q4/shard 0.gguf"), vec![9; 100]).unwrap();
    assert!(matches!(five.fill(), Err(FetchError::DownloadedHash { .. })));
    assert_eq!(fs::read_dir(five.folder()).unwrap().count(), 0);
    let mut five = Five::new();
    five.fill().unwrap();
    five.items[4].pin.sha256 = five.items[3].pin.sha256;
    assert!(matches!(five.fill(), Err(FetchError::StagedHash { .. })));
}

#[test]
fn a_staged_folder_is_hashed_every_time_and_nothing_is_written_to_it() {
    let five = Five::new();
    let staged = five.source.path().join("UD Q4");
    for _ in 0..2 {
        let fetched = verify_staged(&staged, &five.items, 8, true, &go_on).unwrap();
        assert_eq!((fetched.downloaded, fetched.hashed, fetched.trusted), (0, 5, 0));
    }
    assert_eq!(verify_staged(&staged, &five.items, 8, false, &go_on).unwrap().hashed, 0);
    assert_eq!(fs::read_dir(&staged).unwrap().count(), 5, "no marker, no lock");
    let refused = |folder: &Path| verify_staged(folder, &five.items, 8, true, &go_on).unwrap_err().to_string();
    let nowhere = five.source.path().join("nowhere");
    assert!(refused(&nowhere).starts_with("target snapshot directory does not exist"));
    assert!(!nowhere.exists());
    fs::write(staged.join("shard 1.gguf"), b"short").unwrap();
    assert_eq!(refused(&staged), "byte-count mismatch for shard 1.gguf: staged 5, pinned 101; fetch it again");
    fs::remove_file(staged.join("shard 1.gguf")).unwrap();
    assert_eq!(refused(&staged), "pinned checkpoint file is missing: shard 1.gguf; fetch it");
    assert_eq!(fs::read_dir(&staged).unwrap().count(), 4, "nothing created");
}

#[test]
fn a_folder_that_is_being_filled_is_left_alone() {
    let five = Five::new();
    fs::create_dir_all(five.folder().join(".setup-lock")).unwrap();
    let error = five.fill().unwrap_err();
    assert!(error.to_string().starts_with("another setup is filling this folder: "), "{error}");
    assert!(five.folder().join(".setup-lock").exists(), "never broken");
}

#[test]
fn a_file_without_a_size_and_a_list_of_nothing_are_refused() {
    let mut five = Five::new();
    five.items[0].pin.bytes = None;
    assert!(matches!(five.fill(), Err(FetchError::NoSize { .. })));
    five.items.clear();
    assert!(matches!(five.fill(), Err(FetchError::Pins(_))));
    assert!(!five.folder().exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn however_often_it_drops_the_file_is_whole_or_not_there(length in 1_usize..4000, drops in 1_usize..2000, start in 0_usize..4000) {
        let setup = Setup { bytes: body(length), ..Setup::new(Answer::Honest) };
        setup.server.put(URL, &setup.bytes, Answer::DropAfter(drops));
        fs::create_dir_all(setup.file().parent().unwrap()).unwrap();
        fs::write(setup.file().with_added_extension("partial"), &setup.bytes[..start.min(length)]).unwrap();
        setup.run(0).unwrap();
        setup.expect_whole();
    }
}
