//! From bytes to a [`Contract`]: every key with a rule, group by group.

use std::collections::{BTreeMap, BTreeSet};

use bench_protocol::SpecMode;

use super::limits::{self, Bands};
use super::{
    Axes, BaselineCommit, Contract, ContractError, DecodeFigure, PairCombine, Platform, PoolEntry, Regime, Scored,
    Serve, Target, TargetFile, Toolchain, TrackId, Window,
};
use crate::fidelity::{Budget, ReplayRule, TOKEN_BUDGET_PER_THOUSAND};
use crate::fields::{self, Fields};
use crate::golden::ModelShape;
use crate::pin::{ContentPin, Provenance, is_lower_hex};

pub(super) const REGIME: [&str; 2] = ["scores_against_live_control_leg", "paired_flow_retired"];
pub(super) const BANDS: [&str; 6] = [
    "prefill_band_up_tolerance",
    "prefill_band_down_tolerance",
    "decode_band_up_tolerance",
    "decode_band_down_tolerance",
    "prefill_band_down_enabled",
    "decode_band_down_enabled",
];
pub(super) const WINDOW: [&str; 4] = [
    "correctness_steps",
    "benchmark_decode_steps",
    "local_submit_benchmark_decode_steps",
    "official_prefill_warmup_runs",
];
pub(super) const SHAPE: [&str; 4] = ["vocab_size", "num_hidden_layers", "seed_tokens", "golden_model_type"];
pub(super) const STORED_PAIR: [&str; 2] = ["baseline_prefill_seconds_per_token", "baseline_decode_seconds_per_token"];
const WEIGHTS: [&str; 2] = ["score_decode_weight", "score_prefill_weight"];

const MODES: [(&str, SpecMode); 2] = [("serial", SpecMode::Serial), ("mtp", SpecMode::Mtp)];
const MODES_WANTED: &str = "a list of at least one of `serial` and `mtp`, none twice";
const FRACTION: &str = "a fraction, 0 or more and below 1";

/// What a fixture says until an organiser has chosen.
const PENDING: &str = "PENDING-ORGANIZER";

type Read<T> = Result<T, ContractError>;

fn contradiction<T>(what: String) -> Read<T> {
    Err(ContractError::Contradiction { what })
}

impl Contract {
    /// Reads a fixture.
    pub fn parse(bytes: &[u8]) -> Read<Self> {
        let value = fields::parse(bytes).map_err(ContractError::Json)?;
        let root = Fields::root(&value).ok_or(ContractError::NotAnObject)?;

        root.need("schema_version", root.integer("schema_version", 1, 1, "1")?, "1")?;
        let id = root.need("track_id", root.text("track_id")?, "NAME-mlx|cuda|cpu-vN")?;
        let track_id = TrackId::parse(id)?;
        let platform = track_id.platform();
        let words = &Platform::WORDS;
        if let Some(declared) = root.word("platform", words, "one of `mlx`, `cuda`, `cpu`")?
            && declared != platform
        {
            return contradiction(format!("`platform` is `{}` and `track_id` is `{track_id}`", declared.name()));
        }
        root.word("kv_backend", &[("contiguous", ())], "`contiguous`, the one kind there is")?;
        root.integer("scored_batch_size", 1, 1, "1, the one size there is")?;

        let pool = pool(&root)?;
        let live_golden = live_golden(&root, &pool)?;
        let hidden_golden = hidden_golden(&root, live_golden.and_then(|index| pool.get(index)))?;
        let permitted_depths = permitted_depths(&root)?;
        let oracles = oracles(&root)?;
        let serve = serve(&root, &oracles)?;
        let shape = shape(&root)?;
        Ok(Self {
            pin: ContentPin::of(bytes),
            official_pairs: root.need("official_pairs", root.count("official_pairs")?, "a positive integer")?,
            floors: axes(&root, ["decode_speedup_floor", "prefill_speedup_floor"])?,
            weights: weights(&root)?,
            decode_gain_ceiling: root.positive("decode_gain_ceiling")?,
            combine: combine(&root)?,
            decode_figure: decode_figure(&root)?,
            timed_tokens: timed_tokens(&root)?,
            limits: limits::read(&root, platform)?,
            baseline: baseline(&root, platform)?,
            target: target(&root, shape.as_ref())?,
            armed: root.flag("official_scoring_enabled")?,
            allowed_modes: allowed_modes(&root)?,
            scored: regime(&root)?,
            bands: bands(&root)?,
            window: window(&root)?,
            pool,
            serve,
            track_id,
            live_golden,
            hidden_golden,
            oracles,
            permitted_depths,
            shape,
        })
    }
}

fn axes(fields: &Fields<'_>, [decode, prefill]: [&str; 2]) -> Read<Axes> {
    let need = |key: &str| fields.need(key, fields.positive(key)?, "a finite number above 0");
    Ok(Axes { decode: need(decode)?, prefill: need(prefill)? })
}

/// The newer group, the older object, or both with the same numbers.
fn weights(root: &Fields<'_>) -> Read<Axes> {
    let wanted = "a finite number, 0 or more";
    let pair = |fields: &Fields<'_>, [decode, prefill]: [&str; 2]| -> Read<Axes> {
        let need = |key: &str| fields.need(key, fields.number(key, wanted, |weight| weight >= 0.0)?, wanted);
        Ok(Axes { decode: need(decode)?, prefill: need(prefill)? })
    };
    let newer = root.group(&WEIGHTS)?.map(|()| pair(root, WEIGHTS)).transpose()?;
    let older = root.object("scored_exponents")?;
    let older = older.map(|fields| pair(&fields, ["decode_gain_exponent", "prefill_gain_exponent"])).transpose()?;
    let weights = match (newer, older) {
        (Some(newer), Some(older)) if newer != older => {
            return contradiction("score weights and `scored_exponents` differ".into());
        }
        (Some(weights), _) | (None, Some(weights)) => weights,
        (None, None) => return Err(root.wrong(WEIGHTS[0], wanted).into()),
    };
    if weights.decode + weights.prefill > 0.0 {
        Ok(weights)
    } else {
        contradiction("both score weights are 0, so nothing would be scored".into())
    }
}

fn combine(root: &Fields<'_>) -> Read<PairCombine> {
    let words = [
        ("ratio_of_sums", PairCombine::RatioOfSums),
        ("lower_median", PairCombine::LowerMedian),
        ("mean", PairCombine::Mean),
    ];
    let found = root.word("official_pair_combine", &words, "one of `ratio_of_sums`, `lower_median`, `mean`")?;
    Ok(found.unwrap_or_default())
}

fn decode_figure(root: &Fields<'_>) -> Read<DecodeFigure> {
    let words = [("decode_window", DecodeFigure::DecodeWindow), ("whole_window", DecodeFigure::WholeWindow)];
    Ok(root.word("decode_figure", &words, "one of `decode_window`, `whole_window`")?.unwrap_or_default())
}

/// Absent: the track's 10 % (benchd.md 10).
fn timed_tokens(root: &Fields<'_>) -> Read<ReplayRule> {
    let key = "timed_token_tolerance_per_thousand";
    let wanted = "an integer 0..=1000";
    let declared = root.integer(key, 0, 1000, wanted)?;
    let per_thousand = declared.and_then(|number| u32::try_from(number).ok()).unwrap_or(TOKEN_BUDGET_PER_THOUSAND);
    let budget = root.need(key, Budget::new(per_thousand), wanted)?;
    let gap = "timed_token_near_tie_relative_gap";
    let near_tie_gap = root.number(gap, FRACTION, |gap| (0.0..1.0).contains(&gap))?;
    if near_tie_gap.is_some() && declared.is_none() {
        return Err(root.wrong(key, "declared, since timed_token_near_tie_relative_gap is").into());
    }
    Ok(ReplayRule { budget, near_tie_gap })
}

fn allowed_modes(root: &Fields<'_>) -> Read<Vec<SpecMode>> {
    let names = root.need("allowed_modes", root.texts("allowed_modes")?, MODES_WANTED)?;
    let mode = |name: &String| MODES.iter().find(|(word, _)| word == name).map(|(_, mode)| *mode);
    let modes: Option<Vec<SpecMode>> = names.iter().map(mode).collect();
    let different = names.iter().collect::<BTreeSet<_>>().len() == names.len();
    let modes = modes.filter(|modes| !modes.is_empty() && different);
    Ok(root.need("allowed_modes", modes, MODES_WANTED)?)
}

fn regime(root: &Fields<'_>) -> Read<Scored> {
    let stored = root.group(&STORED_PAIR)?.map(|()| axes(root, [STORED_PAIR[1], STORED_PAIR[0]])).transpose()?;
    root.group(&REGIME)?;
    let live = root.flag(REGIME[0])?;
    root.flag(REGIME[1])?;
    match (live, stored) {
        (Some(true), Some(_)) => contradiction("it declares a stored baseline pair and a live control leg".into()),
        (Some(true), None) => Ok(Scored::Against(Regime::LiveControlLeg)),
        (Some(false), None) => Ok(Scored::PendingCapture),
        (_, Some(_)) => Ok(Scored::Against(Regime::StoredPair)),
        (None, None) => Ok(Scored::Undeclared),
    }
}

fn bands(root: &Fields<'_>) -> Read<Option<Bands>> {
    if root.group(&BANDS)?.is_none() {
        return Ok(None);
    }
    let fraction =
        |key: &str| root.need(key, root.number(key, FRACTION, |fraction| (0.0..1.0).contains(&fraction))?, FRACTION);
    let flag = |key: &str| root.need(key, root.flag(key)?, "true or false");
    Ok(Some(Bands {
        prefill_up: fraction(BANDS[0])?,
        prefill_down: fraction(BANDS[1])?,
        decode_up: fraction(BANDS[2])?,
        decode_down: fraction(BANDS[3])?,
        prefill_down_enabled: flag(BANDS[4])?,
        decode_down_enabled: flag(BANDS[5])?,
    }))
}

fn window(root: &Fields<'_>) -> Read<Option<Window>> {
    let timed_runs = root.count("official_prefill_timed_runs")?;
    if root.group(&WINDOW)?.is_none() {
        return Ok(None);
    }
    let steps = |key: &str| root.need(key, root.count(key)?, "a positive integer of at most 32 bits");
    let runs = "an integer of at most 32 bits";
    let warmup = root.integer(WINDOW[3], 0, u64::from(u32::MAX), runs)?.and_then(|runs| u32::try_from(runs).ok());
    Ok(Some(Window {
        correctness_steps: steps(WINDOW[0])?,
        decode_steps: steps(WINDOW[1])?,
        local_submit_decode_steps: steps(WINDOW[2])?,
        prefill_warmup_runs: root.need(WINDOW[3], warmup, runs)?,
        prefill_timed_runs: timed_runs.unwrap_or(1),
    }))
}

fn shape(root: &Fields<'_>) -> Read<Option<ModelShape>> {
    if root.group(&SHAPE)?.is_none() {
        return Ok(None);
    }
    let count = |key: &str| root.need(key, root.count(key)?, "a positive integer of at most 32 bits");
    let seed = count(SHAPE[2])?;
    let wanted = "a text without blanks around it";
    let model_type = root.text(SHAPE[3])?.filter(|text| text.trim() == *text);
    Ok(Some(ModelShape {
        vocab_size: i64::from(count(SHAPE[0])?),
        layers: count(SHAPE[1])?,
        seed_tokens: root.need(SHAPE[2], usize::try_from(seed).ok(), "a positive integer")?,
        model_type: root.need(SHAPE[3], model_type, wanted)?.into(),
    }))
}

fn entry(fields: &Fields<'_>) -> Read<PoolEntry> {
    let wanted = "a path that ends in a file's name";
    let path = fields.text("r2_path")?.filter(|path| !path.ends_with('/'));
    Ok(PoolEntry {
        path: fields.need("r2_path", path, wanted)?.into(),
        sha256: fields.need("sha256", fields.digest("sha256")?, "64 lower-case hexadecimal digits")?,
        bytes: fields.integer("bytes", 1, u64::MAX, "a positive integer")?,
    })
}

fn pool(root: &Fields<'_>) -> Read<Vec<PoolEntry>> {
    let entries = root.objects("timed_prompt_pool")?.unwrap_or_default();
    let pool: Vec<PoolEntry> = entries.iter().map(entry).collect::<Read<_>>()?;
    let mut seen = BTreeSet::new();
    match pool.iter().find(|entry| !seen.insert(&entry.path)) {
        Some(twice) => contradiction(format!("timed_prompt_pool lists `{}` twice", twice.path)),
        None => Ok(pool),
    }
}

/// `live_golden` is a stem: exactly one entry is `DIR/STEM.golden.json`.
fn live_golden(root: &Fields<'_>, pool: &[PoolEntry]) -> Read<Option<usize>> {
    let Some(stem) = root.text("live_golden")? else { return Ok(None) };
    let name = format!("{stem}.golden.json");
    let matching: Vec<usize> = (0..pool.len()).filter(|&index| pool[index].file_name() == name).collect();
    match matching[..] {
        [index] => Ok(Some(index)),
        _ => contradiction(format!(
            "`live_golden` is `{stem}` and timed_prompt_pool has {} entries named `{name}`, not 1",
            matching.len()
        )),
    }
}

fn hidden_golden(root: &Fields<'_>, live: Option<&PoolEntry>) -> Read<Option<ContentPin>> {
    let Some(fields) = root.object("hidden_correctness_golden")? else { return Ok(None) };
    let pin = pin(&fields)?;
    match live {
        Some(live) if !live.matches(pin) => {
            contradiction(format!("hidden_correctness_golden is not the live golden `{}`", live.path))
        }
        _ => Ok(Some(pin)),
    }
}

fn pin(fields: &Fields<'_>) -> Read<ContentPin> {
    let wanted = "a positive integer";
    Ok(ContentPin {
        bytes: fields.need("bytes", fields.integer("bytes", 1, u64::MAX, wanted)?, wanted)?,
        sha256: fields.need("sha256", fields.digest("sha256")?, "64 lower-case hexadecimal digits")?,
    })
}

/// The depth in a key: `mtp3` is 3, `mtp0` and `mtp03` are none.
fn depth_of(key: &str) -> Option<u32> {
    let digits = key.strip_prefix("mtp")?;
    let depth: u32 = digits.parse().ok()?;
    (depth > 0 && depth.to_string() == digits).then_some(depth)
}

fn oracles(root: &Fields<'_>) -> Read<BTreeMap<u32, PoolEntry>> {
    let mut oracles = BTreeMap::new();
    let Some(fields) = root.object("live_golden_speculative")? else { return Ok(oracles) };
    for key in fields.keys() {
        let wanted = "named `mtpN` with N from 1 on, each a golden's pin";
        let depth = fields.need(key, depth_of(key), wanted)?;
        let pinned = fields.object(key)?;
        oracles.insert(depth, entry(&fields.need(key, pinned, wanted)?)?);
    }
    Ok(oracles)
}

fn permitted_depths(root: &Fields<'_>) -> Read<Vec<u32>> {
    let Some(head) = root.object("mtp_head")? else { return Ok(Vec::new()) };
    let depths = head.integers("permitted_draft_depths", 1, "a list of positive integers")?.unwrap_or_default();
    let mut seen = BTreeSet::new();
    match depths.iter().find(|depth| !seen.insert(**depth)) {
        Some(twice) => contradiction(format!("mtp_head.permitted_draft_depths lists {twice} twice")),
        None => Ok(depths),
    }
}

fn baseline(root: &Fields<'_>, platform: Platform) -> Read<Option<BaselineCommit>> {
    let key = "baseline_reference_commit";
    match root.text(key)? {
        None => Ok(None),
        Some(PENDING) => Ok(Some(BaselineCommit::PendingOrganizer)),
        Some("head") if platform == Platform::Cpu => Ok(Some(BaselineCommit::Head)),
        Some(commit) if is_lower_hex(commit, 40) => Ok(Some(BaselineCommit::Commit(commit.into()))),
        Some(_) => Err(root
            .wrong(key, "40 lower-case hexadecimal digits, `PENDING-ORGANIZER`, or on a cpu track `head`")
            .into()),
    }
}

fn serve(root: &Fields<'_>, oracles: &BTreeMap<u32, PoolEntry>) -> Read<Serve> {
    let Some(fields) = root.object("serve_configuration")? else { return Ok(Serve::default()) };
    fields.commit("engine_pin")?;
    let toolchain = match fields.object("toolchain")? {
        None => None,
        Some(tools) => {
            let text = |key: &str| tools.need(key, tools.text(key)?, "a text that is not blank");
            let driver_min = text("driver_min")?;
            let dotted = driver_min.split('.').all(|part| part.parse::<u32>().is_ok());
            tools.need("driver_min", dotted.then_some(()), "numbers between dots")?;
            Some(Toolchain {
                nvcc_version: text("nvcc_version")?.into(),
                cuda_arch: text("cuda_arch")?.into(),
                driver_min: driver_min.into(),
            })
        }
    };
    let mut engine_env = BTreeMap::new();
    if let Some(env) = fields.object("engine_env")? {
        for name in env.keys() {
            let value = env.get(name).and_then(|value| value.as_str());
            let value = env.need(name, value, "a text")?;
            engine_env.insert(name.to_owned(), value.to_owned());
        }
    }
    if let Some(depths) = fields.object("depths")? {
        for key in depths.keys() {
            let wanted = "named `serial` or `mtpN`, each an object";
            let depth = if key == "serial" { Some(0) } else { depth_of(key) };
            let depth = depths.need(key, depth, wanted)?;
            let declared = depths.object(key)?;
            depth_entry(&depths.need(key, declared, wanted)?, depth, oracles)?;
        }
    }
    Ok(Serve {
        engine: fields.text("engine")?.map(Into::into),
        weight_owner: fields.text("weight_owner")?.map(Into::into),
        toolchain,
        engine_env,
        ctx_tokens: fields.count("ctx_tokens")?,
    })
}

/// `ds4_mtp_draft_tokens` is one more than `num_speculative_tokens`, and the oracle it names is there.
fn depth_entry(fields: &Fields<'_>, depth: u32, oracles: &BTreeMap<u32, PoolEntry>) -> Read<()> {
    let (tokens, drafts, oracle) = ("num_speculative_tokens", "ds4_mtp_draft_tokens", "timed_oracle");
    let depth = u64::from(depth);
    let as_key = "the number in its key";
    fields.need(tokens, fields.integer(tokens, depth, depth, as_key)?, as_key)?;
    let one_more = "one more than num_speculative_tokens";
    fields.need(drafts, fields.integer(drafts, depth + 1, depth + 1, one_more)?, one_more)?;
    let wanted = "`hidden_correctness_golden` or `live_golden_speculative.mtpN` of a golden that is there";
    let resolves = fields.text(oracle)?.filter(|name| match name.strip_prefix("live_golden_speculative.") {
        Some(key) => depth_of(key).is_some_and(|depth| oracles.contains_key(&depth)),
        None => *name == "hidden_correctness_golden",
    });
    fields.need(oracle, resolves, wanted)?;
    Ok(())
}

fn target(root: &Fields<'_>, shape: Option<&ModelShape>) -> Read<Option<Target>> {
    let Some(fields) = root.object("target")? else { return Ok(None) };
    let (id, revision) = ("upstream_model_id", "upstream_revision");
    let digits = "40 lower-case hexadecimal digits";
    let provenance = Provenance {
        repository: fields.need(id, fields.text(id)?, "a repository's name")?.into(),
        revision: fields.need(revision, fields.commit(revision)?, digits)?.into(),
    };
    let mut files = Vec::new();
    let mut seen = BTreeSet::new();
    for file in fields.objects("files")?.unwrap_or_default() {
        let path = file.need("path", file.text("path")?, "a path inside the snapshot")?;
        if !seen.insert(path) {
            return contradiction(format!("target.files lists `{path}` twice"));
        }
        files.push(TargetFile { path: path.into(), pin: pin(&file)? });
    }
    if let Some(shape) = shape {
        let agrees = [
            ("vocab_size", fields.count("vocab_size")?.is_none_or(|size| i64::from(size) == shape.vocab_size)),
            ("num_hidden_layers", fields.count("num_hidden_layers")?.is_none_or(|layers| layers == shape.layers)),
            ("model_type", fields.text("model_type")?.is_none_or(|name| name == shape.model_type)),
        ];
        if let Some((key, _)) = agrees.iter().find(|(_, agrees)| !agrees) {
            return contradiction(format!("`target.{key}` is not the model shape's"));
        }
    }
    let ple_table = match fields.object("quantization")? {
        Some(types) => types.text("ple_table")?.map(Into::into),
        None => None,
    };
    Ok(Some(Target {
        provenance,
        variant: fields.text("upstream_variant")?.map(Into::into),
        files,
        ple_table,
        stop_ids: fields.integers("eos_token_ids", 0, "a list of token ids")?.unwrap_or_default(),
        context_tokens: fields.count("max_position_embeddings")?,
    }))
}
