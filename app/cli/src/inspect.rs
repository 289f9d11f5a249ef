//! `cudafast inspect`: what a model's files hold, and the memory a run takes.

use std::fmt::Write as _;

use cudafast_cpu::CpuOptions;
use cudafast_model::{FamilySummary, Inspection, LayerKind, MemoryPlan, WeightSource};
use serde::Serialize;

use crate::args::InspectArgs;
use crate::failure::Failure;
use crate::report::MemoryReport;
use crate::runner::Runner;
use crate::source::Head;
use crate::{load, output, source};

/// The object of `--json`; stable for other programs.
#[derive(Serialize)]
struct Report {
    model: FileReport,
    draft_head: Option<FileReport>,
    /// Null where the file is no whole qwen4exp model.
    geometry: Option<Geometry>,
    memory: Option<MemoryReport>,
    /// What is wrong with the files; null where they can be run.
    problem: Option<String>,
}

#[derive(Serialize)]
struct FileReport {
    label: String,
    architecture: Option<String>,
    name: Option<String>,
    shards: Vec<ShardReport>,
    parameters: u64,
    tensor_bytes: u64,
    families: Vec<FamilyReport>,
}

#[derive(Serialize)]
struct ShardReport {
    path: String,
    bytes: u64,
}

#[derive(Serialize)]
struct FamilyReport {
    family: String,
    tensors: usize,
    bytes: u64,
    types: Vec<TypeReport>,
}

#[derive(Serialize)]
struct TypeReport {
    name: &'static str,
    tensors: usize,
    bytes: u64,
}

#[derive(Serialize)]
struct Geometry {
    layers: usize,
    attention_layers: usize,
    hidden: usize,
    streams: usize,
    vocabulary: usize,
    context_tokens: usize,
    experts: usize,
    experts_used: usize,
    /// Context the memory is planned for.
    planned_ctx_tokens: usize,
}

pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let (model, head) = source::outline_with_head(&args.model, &args.head)?;
    let checked = check(&model, &head, args.ctx_tokens);
    let (found, problem) = match checked {
        Ok(found) => (Some(found), None),
        Err(failure) => (None, Some(failure)),
    };
    if args.json {
        let (geometry, memory) = found.map(|(geometry, plan)| (geometry, MemoryReport::of(&plan))).unzip();
        let (model, draft_head) = (FileReport::of(&model), head.file().map(FileReport::of));
        let told = problem.as_ref().map(Failure::one_line);
        output::json(&Report { model, draft_head, geometry, memory, problem: told })?;
    } else {
        let mut text = FileReport::of(&model).table("model");
        if let Some(head) = head.file() {
            text += &FileReport::of(head).table("draft head");
        }
        if let Some((geometry, plan)) = &found {
            text += &geometry.lines();
            let _ = writeln!(text, "\nmemory for {} tokens of context\n{plan}", geometry.planned_ctx_tokens);
        }
        output::text(&text)?;
    }
    problem.map_or(Ok(()), Err)
}

/// Everything loading checks, and the plan of a run by the defaults.
fn check(model: &WeightSource, head: &Head, ctx: Option<usize>) -> Result<(Geometry, MemoryPlan), Failure> {
    let loaded = load::load(model.clone(), head, &Runner::Cpu(CpuOptions::default()))?;
    let hp = loaded.engine.backend().hyperparams();
    let found = ctx.unwrap_or_else(|| loaded.default_ctx_tokens());
    let plan = loaded.plan(found, 0)?;
    let geometry = Geometry {
        layers: hp.layers.len(),
        attention_layers: hp.layers.iter().filter(|kind| **kind == LayerKind::Attention).count(),
        hidden: hp.hidden,
        streams: hp.streams,
        vocabulary: hp.vocab,
        context_tokens: hp.context_tokens,
        experts: hp.moe.experts,
        experts_used: hp.moe.used,
        planned_ctx_tokens: found,
    };
    Ok((geometry, plan))
}

impl FileReport {
    fn of(file: &WeightSource) -> Self {
        let inspection = Inspection::of(file);
        let shards = match file {
            WeightSource::Shards(set) => set.shards(),
            _ => &[],
        };
        let text = |key: &str| file.metadata().str_opt(key).ok().flatten().map(str::to_owned);
        let shard =
            |s: &cudafast_gguf::Shard| ShardReport { path: s.path().display().to_string(), bytes: s.file_bytes() };
        Self {
            label: file.label().to_owned(),
            architecture: text("general.architecture"),
            name: text("general.name"),
            shards: shards.iter().map(shard).collect(),
            parameters: inspection.elements,
            tensor_bytes: inspection.bytes,
            families: inspection.families.iter().map(FamilyReport::of).collect(),
        }
    }

    fn table(&self, what: &str) -> String {
        let mut text = String::new();
        // Names out of a file reach a terminal: control characters are escaped.
        let or_none = |text: &Option<String>| text.as_deref().map_or_else(|| "none".into(), cudafast_gguf::shown);
        let _ = writeln!(text, "{what}: {}", self.label);
        let _ = writeln!(text, "  architecture {}, name {}", or_none(&self.architecture), or_none(&self.name));
        let file_bytes: u64 = self.shards.iter().map(|s| s.bytes).sum();
        let _ = writeln!(text, "  {} file(s), {file_bytes} bytes, {} parameters", self.shards.len(), self.parameters);
        for family in &self.families {
            let types: Vec<String> = family.types.iter().map(|t| format!("{} {}", t.tensors, t.name)).collect();
            let share = 100.0 * family.bytes as f64 / self.tensor_bytes.max(1) as f64;
            let _ = writeln!(
                text,
                "  {:<18} {:>5} tensors  {:>15} bytes  {share:>5.1} %  {}",
                family.family,
                family.tensors,
                family.bytes,
                types.join(", ")
            );
        }
        let tensors: usize = self.families.iter().map(|f| f.tensors).sum();
        let _ = writeln!(text, "  {:<18} {tensors:>5} tensors  {:>15} bytes", "all", self.tensor_bytes);
        text
    }
}

impl FamilyReport {
    fn of(summary: &FamilySummary) -> Self {
        let types = summary.types.iter().map(|t| TypeReport { name: t.name, tensors: t.tensors, bytes: t.bytes });
        Self {
            family: summary.family.map_or("unknown".into(), |family| family.to_string()),
            tensors: summary.tensors,
            bytes: summary.bytes,
            types: types.collect(),
        }
    }
}

impl Geometry {
    fn lines(&self) -> String {
        format!(
            "geometry: {} layers ({} of attention), hidden {}, {} streams, {} of {} experts used, vocabulary {}, trained context {}\n",
            self.layers,
            self.attention_layers,
            self.hidden,
            self.streams,
            self.experts_used,
            self.experts,
            self.vocabulary,
            self.context_tokens
        )
    }
}
