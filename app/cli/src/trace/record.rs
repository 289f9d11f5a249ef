//! A probe that keeps what it sees.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudafast_cpu::{Probe, Selected};
use cudafast_runtime::CancelFlag;

use super::file::{Event, Kind};

/// Which values are kept.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub(crate) layers: Range<usize>,
    /// Beginnings of operation names; empty: all.
    pub(crate) ops: Vec<String>,
}

impl Filter {
    fn keeps(&self, layer: usize, op: &str) -> bool {
        self.layers.contains(&layer) && (self.ops.is_empty() || self.ops.iter().any(|start| op.starts_with(start)))
    }
}

/// Values on disk and what they are.
pub(crate) struct Recording {
    pub(crate) events: Vec<Event>,
    data: BufWriter<File>,
    filter: Filter,
    /// Width of a residual row.
    wide: usize,
    /// The layer of the draft head.
    head_layer: usize,
    /// Position of the last row of the draft head's block.
    head_position: usize,
    failed: Option<io::Error>,
    cancel: CancelFlag,
}

/// The probe. The recording stays with [`Recorder::new`]'s caller.
pub(crate) struct Recorder(Arc<Mutex<Recording>>);

pub(crate) fn lock(recording: &Mutex<Recording>) -> MutexGuard<'_, Recording> {
    recording.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// Values go to `data`. What cannot be written raises `cancel` and is told by [`Recording::finish`].
    pub(crate) fn new(
        data: File,
        filter: Filter,
        layers: usize,
        wide: usize,
        cancel: CancelFlag,
    ) -> (Self, Arc<Mutex<Recording>>) {
        let recording = Arc::new(Mutex::new(Recording {
            events: Vec::new(),
            data: BufWriter::with_capacity(1 << 20, data),
            filter,
            wide,
            head_layer: layers,
            head_position: 0,
            failed: None,
            cancel,
        }));
        (Self(Arc::clone(&recording)), recording)
    }
}

impl Recording {
    /// The file with all values.
    pub(crate) fn finish(&mut self) -> io::Result<File> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.data.flush()?;
        self.data.get_ref().try_clone()
    }

    fn add(&mut self, event: Event, values: impl Iterator<Item = [u8; 8]>) {
        if self.failed.is_some() || event.rows == 0 || !self.filter.keeps(event.layer, &event.op) {
            return;
        }
        let bytes = event.kind.bytes();
        for value in values {
            if let Err(error) = self.data.write_all(&value[..bytes]) {
                self.failed = Some(error);
                self.cancel.raise(); // the disk is full: no use in running the rest
                return;
            }
        }
        match self.events.last_mut() {
            // Ids come row by row.
            Some(last)
                if event.kind == Kind::Id
                    && (last.layer, last.kind, last.width) == (event.layer, event.kind, event.width)
                    && last.op == event.op
                    && last.position + last.rows == event.position =>
            {
                last.rows += event.rows;
            }
            _ => self.events.push(event),
        }
    }

    fn floats(&mut self, layer: usize, op: &str, position: usize, width: usize, values: &[f32]) {
        let rows = values.len() / width.max(1);
        let event = Event { layer, op: op.into(), position, rows, width, kind: Kind::Float };
        let widened = |v: &f32| {
            let [a, b, c, d] = v.to_le_bytes();
            [a, b, c, d, 0, 0, 0, 0]
        };
        self.add(event, values.iter().map(widened));
    }

    fn ids(&mut self, layer: usize, op: &str, position: usize, ids: &[u64]) {
        let event = Event { layer, op: op.into(), position, rows: 1, width: ids.len(), kind: Kind::Id };
        self.add(event, ids.iter().map(|id| id.to_le_bytes()));
    }
}

impl Probe for Recorder {
    fn value(&mut self, layer: usize, op: &'static str, position: usize, width: usize, values: &[f32]) {
        lock(&self.0).floats(layer, op, position, width, values);
    }
    fn residual(&mut self, layer: usize, position: usize, x: &[f32]) {
        let mut recording = lock(&self.0);
        let wide = recording.wide;
        if layer == recording.head_layer {
            recording.head_position = position + (x.len() / wide).saturating_sub(1);
        }
        recording.floats(layer, "residual", position, wide, x);
    }
    fn experts(&mut self, layer: usize, position: usize, ids: &[u32]) {
        let ids: Vec<u64> = ids.iter().map(|id| u64::from(*id)).collect();
        lock(&self.0).ids(layer, "moe.experts", position, &ids);
    }
    fn selection(&mut self, layer: usize, position: usize, tokens: &Selected) {
        let ids: Vec<u64> = tokens.tokens().map(|token| token as u64).collect();
        lock(&self.0).ids(layer, "attention.tokens", position, &ids);
    }
    fn ngram_rows(&mut self, layer: usize, position: usize, rows: &[u64]) {
        lock(&self.0).ids(layer, "ngram.rows", position, rows);
    }
    fn draft(&mut self, logits: &[f32]) {
        let mut recording = lock(&self.0);
        let (layer, position) = (recording.head_layer, recording.head_position);
        recording.floats(layer, "draft.logits", position, logits.len(), logits);
    }
}
