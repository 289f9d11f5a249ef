//! What one token of serial decoding reads and multiplies, by number format: the arithmetic behind GB/s.
//!
//! Counted from the tensors' sizes. Of the routed experts the used share, of the token embedding one row, of the n-gram table
//! a row for each hash head; of a loaded draft head its block, which every committed token runs to keep its cache, but
//! neither its final mixer nor its output, which only drafts need. State (caches, delta-net matrices) is not counted.

use std::collections::BTreeMap;

use cudafast_model::{Family, Hyperparams, Inspection, TensorSummary, WeightSource};
use cudafast_quant::{Format, format_by_name};
use serde::Serialize;

/// Weights of one format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct FormatReads {
    pub(crate) bytes: f64,
    /// Multiply-accumulates.
    pub(crate) macs: f64,
}

/// What a token reads of the weights.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Reads {
    pub(crate) bytes: f64,
    pub(crate) macs: f64,
    pub(crate) formats: BTreeMap<&'static str, FormatReads>,
}

impl Reads {
    pub(crate) fn of(model: &WeightSource, head: Option<&WeightSource>, hp: &Hyperparams) -> Self {
        let mut reads = Self::default();
        let of_head = head.map(|head| Inspection::of(head).tensors).unwrap_or_default();
        let of_head = of_head.into_iter().filter(|tensor| in_block(&tensor.name));
        for tensor in Inspection::of(model).tensors.into_iter().chain(of_head) {
            reads.add(&tensor, hp);
        }
        reads
    }

    /// The formats that are multiplied with.
    pub(crate) fn formats(&self) -> Vec<&'static Format> {
        let used = self.formats.iter().filter(|(_, reads)| reads.macs > 0.0);
        used.filter_map(|(name, _)| format_by_name(name)).collect()
    }

    fn add(&mut self, tensor: &TensorSummary, hp: &Hyperparams) {
        let elements = tensor.ne.iter().product::<u64>() as f64;
        let rows = tensor.ne.iter().skip(1).product::<u64>().max(1) as f64;
        let (share, multiplied) = match tensor.family {
            Some(Family::RoutedExperts) => (hp.moe.used as f64 / hp.moe.experts.max(1) as f64, true),
            Some(Family::TokenEmbedding) => (1.0 / rows, false),
            Some(Family::NgramTable) => (hp.ngram.heads() as f64 / rows, false),
            _ => (1.0, tensor.ne.len() > 1), // a vector is read and not multiplied as a matrix
        };
        let bytes = tensor.bytes as f64 * share;
        let macs = if multiplied { elements * share } else { 0.0 };
        self.bytes += bytes;
        self.macs += macs;
        let format = self.formats.entry(tensor.type_name).or_default();
        format.bytes += bytes;
        format.macs += macs;
    }
}

/// Whether a tensor of a draft head is read for every committed token.
fn in_block(name: &str) -> bool {
    Family::of_tensor(name).is_some_and(|family| match family {
        Family::TokenEmbedding | Family::OutputHead => false,
        Family::DraftHead => !name.contains(".nextn.hc_head") && !name.contains(".nextn.shared_head"),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudafast_gguf::ShardSet;

    #[test]
    fn a_token_of_the_embedded_model_reads_half_of_its_experts_one_embedding_row_and_its_hashed_rows() {
        let open = |file: &str| WeightSource::from(ShardSet::open(&cudafast_tiny::tree_path(file)).unwrap());
        let (model, head) = (open(cudafast_tiny::MODEL_FILE), open(cudafast_tiny::DRAFT_HEAD_FILE));
        let hp = Hyperparams::from_source(&model).unwrap();
        let of = |family: Family| {
            let all = Inspection::of(&model).families.into_iter().find(|f| f.family == Some(family)).unwrap();
            all.bytes as f64
        };
        let all = Inspection::of(&model).bytes as f64;
        let want = all
            - of(Family::RoutedExperts) / 2.0
            - of(Family::TokenEmbedding) * (4095.0 / 4096.0)
            - of(Family::NgramTable);
        let reads = Reads::of(&model, None, &hp);
        let table_rows = reads.bytes - want;
        assert!(table_rows > 0.0 && table_rows < 8192.0, "{table_rows} bytes of table rows");
        assert_eq!(reads.formats.values().map(|f| f.bytes).sum::<f64>(), reads.bytes);
        assert!(Reads::of(&model, Some(&head), &hp).bytes > reads.bytes);
    }
}
