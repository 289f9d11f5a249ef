//! Which part of the model a tensor belongs to, told by its name alone (the rows of qwen4exp.md 11).

use std::fmt;

/// A part of the model that is planned, listed and read as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// `ffn_{gate,up,down}_exps`: a token reads a few of them.
    RoutedExperts,
    /// Gated delta net projections, convolution and gates.
    Gdn,
    /// Attention projections and norms, the indexer apart.
    Attention,
    /// Both hyper-connections of every block and the final mixer.
    HyperConnections,
    /// `ffn_gate_inp` and the shared expert's scalar gate.
    Router,
    /// `ffn_{gate,up,down}_shexp`.
    SharedExpert,
    /// Sparse-attention indexer.
    Indexer,
    /// Key, value, norms and convolution of the one n-gram layer; not the table.
    NgramBlock,
    /// `token_embd`: a token reads one row.
    TokenEmbedding,
    /// `output`, the LM head.
    OutputHead,
    /// `per_layer_token_embd`: a token reads one row per hash head.
    NgramTable,
    /// The MTP head. By name only its `nextn` tensors; a [`MemoryPlan`](crate::MemoryPlan) counts its whole file here.
    DraftHead,
}

impl Family {
    /// All of them, in the order they are listed.
    pub const ALL: [Family; 12] = [
        Family::RoutedExperts,
        Family::Gdn,
        Family::Attention,
        Family::HyperConnections,
        Family::Router,
        Family::SharedExpert,
        Family::Indexer,
        Family::NgramBlock,
        Family::TokenEmbedding,
        Family::OutputHead,
        Family::NgramTable,
        Family::DraftHead,
    ];

    /// The family of a tensor, `None` for a name that no qwen4exp file has.
    pub fn of_tensor(name: &str) -> Option<Family> {
        match name {
            "token_embd.weight" => return Some(Family::TokenEmbedding),
            "output.weight" => return Some(Family::OutputHead),
            "per_layer_token_embd.weight" => return Some(Family::NgramTable),
            "output_hc_norm.weight" | "output_hc_down.weight" | "output_hc_up.weight" => {
                return Some(Family::HyperConnections);
            }
            _ => {}
        }
        let (block, part) = name.strip_prefix("blk.")?.split_once('.')?;
        block.parse::<u32>().ok()?;
        Some(match part {
            "ffn_gate_exps.weight" | "ffn_up_exps.weight" | "ffn_down_exps.weight" => Family::RoutedExperts,
            "ffn_gate_shexp.weight" | "ffn_up_shexp.weight" | "ffn_down_shexp.weight" => Family::SharedExpert,
            "ffn_gate_inp.weight" | "ffn_gate_inp_shexp.weight" => Family::Router,
            // attn_gate is the delta net's output gate: attention's own gate sits inside attn_q
            "attn_qkv.weight" | "attn_gate.weight" => Family::Gdn,
            "attn_q.weight" | "attn_k.weight" | "attn_v.weight" | "attn_output.weight" => Family::Attention,
            "attn_q_norm.weight" | "attn_k_norm.weight" => Family::Attention,
            _ if part.starts_with("ssm_") => Family::Gdn,
            _ if part.starts_with("indexer.") => Family::Indexer,
            _ if part.starts_with("hc_attn_") || part.starts_with("hc_ffn_") => Family::HyperConnections,
            _ if part.starts_with("ple_") => Family::NgramBlock,
            _ if part.starts_with("nextn.") => Family::DraftHead,
            _ => return None,
        })
    }

    /// What people call it.
    pub fn label(self) -> &'static str {
        match self {
            Family::RoutedExperts => "routed experts",
            Family::Gdn => "GDN",
            Family::Attention => "attention",
            Family::HyperConnections => "hyper-connections",
            Family::Router => "router",
            Family::SharedExpert => "shared expert",
            Family::Indexer => "indexer",
            Family::NgramBlock => "n-gram block",
            Family::TokenEmbedding => "token embedding",
            Family::OutputHead => "LM head",
            Family::NgramTable => "n-gram table",
            Family::DraftHead => "draft head",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}
