//! From names to typed tensors: exact shapes, allowed types, plausible values (gguf-qwen4exp.md 3 and 7).

use std::collections::HashSet;

use cudafast_quant::{Format, format_by_id, formats};

use crate::{
    error::Error,
    hyperparams::{Hyperparams, LayerKind},
    matrix::{Experts, Matrix, Vector},
    source::{SourceTensor, WeightSource},
    weights::{
        AttentionWeights, GdnWeights, HyperConnection, HyperRead, Layer, Mixer, MoeWeights, NgramWeights, Weights,
    },
};

const F32: u32 = 0;
/// Ternary formats whose experts are stored in a rotated basis: PQ2_0 and PTQ1_0.
pub(crate) const TERNARY: [u32; 2] = [142, 143];

impl Weights {
    /// Binds every tensor of the model and refuses any other. Matrices are not read, vectors are (a few MB).
    pub fn bind(source: &WeightSource, hyperparams: &Hyperparams) -> Result<Self, Error> {
        let mut binder = Binder::new(source, hyperparams);
        let hp = hyperparams;
        let weights = Self {
            token_embd: binder.vocabulary_matrix("token_embd.weight")?,
            output: binder.vocabulary_matrix("output.weight")?,
            output_hc: binder.hyper_read("output_hc_")?,
            ngram_table: binder.ngram_table()?,
            layers: (0..hp.layers.len())
                .map(|at| binder.layer(at, hp.layers[at], at == hp.ngram.layer))
                .collect::<Result<_, _>>()?,
        };
        binder.finish()?;
        Ok(weights)
    }
}

/// Takes tensors out of a source by name and remembers which.
pub(crate) struct Binder<'a> {
    source: &'a WeightSource,
    hp: &'a Hyperparams,
    bound: HashSet<String>,
}

impl<'a> Binder<'a> {
    pub(crate) fn new(source: &'a WeightSource, hp: &'a Hyperparams) -> Self {
        Self { source, hp, bound: HashSet::new() }
    }

    fn file(&self) -> String {
        self.source.label().into()
    }

    /// The tensor of that name and exactly that shape, fastest dimension first.
    fn tensor(&mut self, name: &str, ne: &[usize]) -> Result<SourceTensor<'a>, Error> {
        let tensor = self.any_shape(name, ne)?;
        if !same(tensor.ne, ne) {
            return Err(self.bad_shape(&tensor, format!("{ne:?}")));
        }
        Ok(tensor)
    }

    fn any_shape(&mut self, name: &str, ne: &[usize]) -> Result<SourceTensor<'a>, Error> {
        let Some(tensor) = self.source.tensor(name) else {
            let expected = ne.iter().map(|&n| n as u64).collect();
            return Err(Error::MissingTensor { file: self.file(), name: name.into(), expected });
        };
        self.bound.insert(name.into());
        Ok(tensor)
    }

    fn bad_shape(&self, tensor: &SourceTensor<'_>, expected: String) -> Error {
        Error::TensorShape { file: self.file(), name: tensor.name.into(), found: tensor.ne.into(), expected }
    }

    fn bad_type(&self, tensor: &SourceTensor<'_>, allowed: String) -> Error {
        let found = format!("{} ({})", tensor.type_name, tensor.type_id);
        Error::TensorType { file: self.file(), name: tensor.name.into(), found, allowed }
    }

    /// The format of a matrix: any that can be computed with. Roles do not limit it (design 8, "types per role").
    fn format(&self, tensor: &SourceTensor<'_>) -> Result<&'static Format, Error> {
        format_by_id(tensor.type_id).ok_or_else(|| {
            let names: Vec<&str> = formats().iter().map(|f| f.name).collect();
            self.bad_type(tensor, names.join(", "))
        })
    }

    fn require_f32(&self, tensor: &SourceTensor<'_>) -> Result<(), Error> {
        match tensor.type_id {
            F32 => Ok(()),
            _ => Err(self.bad_type(tensor, "F32 only".into())),
        }
    }

    /// `[rows, cols]` of any format.
    pub(crate) fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Error> {
        let tensor = self.tensor(name, &[cols, rows])?;
        Matrix::new(name, self.format(&tensor)?, rows, cols, tensor.data)
    }

    /// `[rows, cols]` in F32: what decides routing and decay is never rounded.
    fn f32_matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Error> {
        let tensor = self.tensor(name, &[cols, rows])?;
        self.require_f32(&tensor)?;
        Matrix::new(name, self.format(&tensor)?, rows, cols, tensor.data)
    }

    /// `[vocab, hidden]`: another number of rows is another vocabulary.
    pub(crate) fn vocabulary_matrix(&mut self, name: &str) -> Result<Matrix, Error> {
        let (hidden, vocab) = (self.hp.hidden, self.hp.vocab);
        let tensor = self.any_shape(name, &[hidden, vocab])?;
        match *tensor.ne {
            [cols, rows] if cols == hidden as u64 && rows != vocab as u64 => Err(Error::Vocabulary {
                file: self.file(),
                what: format!("the number of rows of tensor `{name}`"),
                found: rows.to_string(),
                expected: format!("{vocab}, the length of `tokenizer.ggml.tokens`"),
            }),
            _ => self.matrix(name, vocab, hidden),
        }
    }

    fn experts(&mut self, name: &str, rows: usize, cols: usize) -> Result<Experts, Error> {
        let experts = self.hp.moe.experts;
        let tensor = self.tensor(name, &[cols, rows, experts])?;
        if TERNARY.contains(&tensor.type_id) {
            let found = tensor.type_name.into();
            return Err(Error::RotatedExperts { file: self.file(), name: name.into(), found });
        }
        Experts::new(name, self.format(&tensor)?, [experts, rows, cols], tensor.data)
    }

    /// F32 numbers that nobody has looked at.
    fn floats(&mut self, name: &str, ne: &[usize]) -> Result<Vector, Error> {
        let tensor = self.tensor(name, ne)?;
        self.require_f32(&tensor)?;
        Vector::new(name, tensor.data)
    }

    /// Finite F32 numbers.
    fn vector(&mut self, name: &str, ne: &[usize]) -> Result<Vector, Error> {
        let vector = self.floats(name, ne)?;
        self.require_finite(&vector)?;
        Ok(vector)
    }

    fn require_finite(&self, vector: &Vector) -> Result<(), Error> {
        let values = vector.as_slice();
        match values.iter().position(|v| !v.is_finite()) {
            None => Ok(()),
            Some(index) => {
                let (file, name) = (self.file(), vector.name.clone());
                Err(Error::NotFinite { file, name, index, value: values[index] })
            }
        }
    }

    /// Norm gains. The format stores `1 + w`; raw `w` would be negative about half the time, and nothing else tells.
    pub(crate) fn gain(&mut self, name: &str, len: usize) -> Result<Vector, Error> {
        let vector = self.vector(name, &[len])?;
        let negative = vector.as_slice().iter().filter(|&&v| v < 0.0).count();
        let (file, name) = (self.file(), name.into());
        if negative * 4 >= len {
            return Err(Error::ZeroCentredNorm { file, name, negative, len });
        }
        if negative * 100 >= len * 15 {
            return Err(Error::AmbiguousNorm { file, name, negative, len });
        }
        Ok(vector)
    }

    /// `-exp(A_log)`, one per value head.
    fn decay(&mut self, name: &str) -> Result<Vector, Error> {
        let vector = self.floats(name, &[self.hp.gdn.value_heads])?;
        let values = vector.as_slice();
        match values.iter().position(|&v| !(v.is_finite() && v < 0.0)) {
            None => Ok(vector),
            Some(index) => Err(Error::NotDecay { file: self.file(), name: name.into(), index, value: values[index] }),
        }
    }

    fn ngram_table(&mut self) -> Result<Matrix, Error> {
        let ngram = &self.hp.ngram;
        let name = "per_layer_token_embd.weight";
        let used = ngram.used_rows();
        let tensor = self.any_shape(name, &[ngram.row_width, used as usize])?;
        let rows = match *tensor.ne {
            [cols, rows] if cols == ngram.row_width as u64 => rows,
            _ => return Err(self.bad_shape(&tensor, format!("[{}, {used} or up to 255 more]", ngram.row_width))),
        };
        if !ngram.fits_table(rows) {
            return Err(Error::Ngram {
                file: self.file(),
                what: format!("the number of rows of tensor `{name}`"),
                found: rows.to_string(),
                expected: format!("{used} (the last head's end) or up to 255 more"),
            });
        }
        Matrix::new(name, self.format(&tensor)?, rows as usize, ngram.row_width, tensor.data)
    }

    /// The tensors `PREFIXnorm`, `PREFIXdown`, `PREFIXup`.
    pub(crate) fn hyper_read(&mut self, prefix: &str) -> Result<HyperRead, Error> {
        let (wide, rank) = (self.hp.wide(), self.hp.hyper_rank);
        Ok(HyperRead {
            norm: self.gain(&format!("{prefix}norm.weight"), wide)?,
            down: self.matrix(&format!("{prefix}down.weight"), rank, wide)?,
            up: self.matrix(&format!("{prefix}up.weight"), wide, rank)?,
        })
    }

    fn hyper_connection(&mut self, prefix: &str) -> Result<HyperConnection, Error> {
        Ok(HyperConnection {
            read: self.hyper_read(prefix)?,
            inject: self.matrix(&format!("{prefix}inject.weight"), self.hp.streams, self.hp.wide())?,
        })
    }

    /// Block `at`, of a kind that the caller knows.
    pub(crate) fn layer(&mut self, at: usize, kind: LayerKind, ngram: bool) -> Result<Layer, Error> {
        let block = format!("blk.{at}.");
        Ok(Layer {
            ngram: if ngram { Some(self.ngram(&block)?) } else { None },
            hc_mixer: self.hyper_connection(&format!("{block}hc_attn_"))?,
            mixer: match kind {
                LayerKind::Gdn => Mixer::Gdn(self.gdn(&block)?),
                LayerKind::Attention => Mixer::Attention(self.attention(&block)?),
            },
            hc_ffn: self.hyper_connection(&format!("{block}hc_ffn_"))?,
            moe: self.moe(&block)?,
        })
    }

    fn gdn(&mut self, block: &str) -> Result<GdnWeights, Error> {
        let (hp, hidden) = (self.hp, self.hp.hidden);
        let (gdn, channels, inner) = (&hp.gdn, hp.gdn.qkv_channels(), hp.gdn.inner());
        let name = |part: &str| format!("{block}{part}");
        Ok(GdnWeights {
            qkv: self.matrix(&name("attn_qkv.weight"), channels, hidden)?,
            gate: self.matrix(&name("attn_gate.weight"), inner, hidden)?,
            alpha: self.f32_matrix(&name("ssm_alpha.weight"), gdn.value_heads, hidden)?,
            beta: self.f32_matrix(&name("ssm_beta.weight"), gdn.value_heads, hidden)?,
            conv: self.vector(&name("ssm_conv1d.weight"), &[gdn.conv_kernel, channels])?,
            dt_bias: self.vector(&name("ssm_dt.bias"), &[gdn.value_heads])?,
            a: self.decay(&name("ssm_a"))?,
            // a plain gain that never had a +1, so the sign rule does not apply
            norm: self.vector(&name("ssm_norm.weight"), &[gdn.head_dim])?,
            out: self.matrix(&name("ssm_out.weight"), hidden, inner)?,
        })
    }

    fn attention(&mut self, block: &str) -> Result<AttentionWeights, Error> {
        let (hp, hidden) = (self.hp, self.hp.hidden);
        let (attention, indexer) = (&hp.attention, &hp.indexer);
        let (q, kv) = (attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim);
        let name = |part: &str| format!("{block}{part}");
        Ok(AttentionWeights {
            q: self.matrix(&name("attn_q.weight"), 2 * q, hidden)?,
            k: self.matrix(&name("attn_k.weight"), kv, hidden)?,
            v: self.matrix(&name("attn_v.weight"), kv, hidden)?,
            out: self.matrix(&name("attn_output.weight"), hidden, q)?,
            q_norm: self.gain(&name("attn_q_norm.weight"), attention.head_dim)?,
            k_norm: self.gain(&name("attn_k_norm.weight"), attention.head_dim)?,
            index_q: self.matrix(&name("indexer.q_proj.weight"), indexer.heads * indexer.head_dim, hidden)?,
            index_k: self.matrix(&name("indexer.k_proj.weight"), indexer.head_dim, hidden)?,
            index_q_norm: self.gain(&name("indexer.q_norm.weight"), indexer.head_dim)?,
            index_k_norm: self.gain(&name("indexer.k_norm.weight"), indexer.head_dim)?,
        })
    }

    fn ngram(&mut self, block: &str) -> Result<NgramWeights, Error> {
        let (hp, wide) = (self.hp, self.hp.wide());
        let width = hp.ngram.width();
        let name = |part: &str| format!("{block}ple_{part}.weight");
        Ok(NgramWeights {
            key: self.matrix(&name("key"), wide, width)?,
            value: self.matrix(&name("value"), hp.hidden, width)?,
            norm_key: self.gain(&name("norm_key"), wide)?,
            norm_query: self.gain(&name("norm_query"), wide)?,
            norm_conv: self.gain(&name("norm_conv"), wide)?,
            conv: self.vector(&name("conv1d"), &[hp.ngram.conv_kernel, wide])?,
        })
    }

    fn moe(&mut self, block: &str) -> Result<MoeWeights, Error> {
        let (hp, hidden) = (self.hp, self.hp.hidden);
        let (ff, shared) = (hp.moe.expert_ff, hp.moe.shared_ff);
        let name = |part: &str| format!("{block}ffn_{part}.weight");
        Ok(MoeWeights {
            router: self.f32_matrix(&name("gate_inp"), hp.moe.experts, hidden)?,
            gate: self.experts(&name("gate_exps"), ff, hidden)?,
            up: self.experts(&name("up_exps"), ff, hidden)?,
            down: self.experts(&name("down_exps"), hidden, ff)?,
            shared_gate: self.matrix(&name("gate_shexp"), shared, hidden)?,
            shared_up: self.matrix(&name("up_shexp"), shared, hidden)?,
            shared_down: self.matrix(&name("down_shexp"), hidden, shared)?,
            shared_router: self.shared_router(&name("gate_inp_shexp"))?,
        })
    }

    /// `[1, hidden]` in F32. Some files drop the 1 (rank 1), some keep it.
    fn shared_router(&mut self, name: &str) -> Result<Matrix, Error> {
        let hidden = self.hp.hidden;
        let tensor = self.any_shape(name, &[hidden])?;
        if !same(tensor.ne, &[hidden]) && !same(tensor.ne, &[hidden, 1]) {
            return Err(self.bad_shape(&tensor, format!("[{hidden}] or [{hidden}, 1]")));
        }
        self.require_f32(&tensor)?;
        let format = self.format(&tensor)?;
        let vector = Vector::new(name, tensor.data)?;
        self.require_finite(&vector)?;
        Matrix::new(name, format, 1, hidden, vector.data)
    }

    /// Refuses tensors that nothing asked for.
    pub(crate) fn finish(self) -> Result<(), Error> {
        match self.source.tensors().find(|t| !self.bound.contains(t.name)) {
            None => Ok(()),
            Some(t) => Err(Error::UnexpectedTensor { file: self.file(), name: t.name.into(), ne: t.ne.into() }),
        }
    }
}

fn same(found: &[u64], expected: &[usize]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(&f, &e)| f == e as u64)
}
