//! What a file holds, by family: for people and scripts, before anything is checked.

use std::collections::BTreeMap;

use crate::{family::Family, source::WeightSource};

/// Tensors of a source, listed and summed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Each tensor, in the order of the set.
    pub tensors: Vec<TensorSummary>,
    /// Sums, in the order of [`Family::ALL`], then tensors of no family; families without tensors are left out.
    pub families: Vec<FamilySummary>,
    /// Elements of all tensors: the parameter count.
    pub elements: u64,
    /// Bytes of all tensors.
    pub bytes: u64,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSummary {
    /// Name in the file.
    pub name: String,
    /// Its family, `None` if no qwen4exp file has such a tensor.
    pub family: Option<Family>,
    /// Name of its type.
    pub type_name: &'static str,
    /// Sizes, fastest first.
    pub ne: Vec<u64>,
    /// Bytes.
    pub bytes: u64,
}

/// One family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilySummary {
    /// Which; `None` for tensors that no qwen4exp file has.
    pub family: Option<Family>,
    /// Its types by name.
    pub types: Vec<TypeSummary>,
    /// Number of tensors.
    pub tensors: usize,
    /// Bytes.
    pub bytes: u64,
}

/// The tensors of one type in a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeSummary {
    /// Name of the type.
    pub name: &'static str,
    /// Number of tensors.
    pub tensors: usize,
    /// Bytes.
    pub bytes: u64,
}

impl Inspection {
    /// Lists `source`. Reads no tensor, needs no key, refuses nothing.
    pub fn of(source: &WeightSource) -> Self {
        let mut tensors = Vec::new();
        let mut types: BTreeMap<(Option<Family>, &'static str), (usize, u64)> = BTreeMap::new();
        let mut elements = 0_u64;
        for tensor in source.tensors() {
            let (family, bytes) = (Family::of_tensor(tensor.name), tensor.data.len() as u64);
            let sum = types.entry((family, tensor.type_name)).or_default();
            *sum = (sum.0 + 1, sum.1 + bytes);
            elements = tensor.ne.iter().product::<u64>().saturating_add(elements);
            tensors.push(TensorSummary {
                name: tensor.name.into(),
                family,
                type_name: tensor.type_name,
                ne: tensor.ne.into(),
                bytes,
            });
        }
        let listed = Family::ALL.into_iter().map(Some).chain([None]);
        let families = listed.filter_map(|family| FamilySummary::of(family, &types)).collect();
        let bytes = tensors.iter().map(|t| t.bytes).sum();
        Self { tensors, families, elements, bytes }
    }
}

impl FamilySummary {
    fn of(family: Option<Family>, types: &BTreeMap<(Option<Family>, &'static str), (usize, u64)>) -> Option<Self> {
        let types: Vec<TypeSummary> = types
            .iter()
            .filter(|((of, _), _)| *of == family)
            .map(|((_, name), (tensors, bytes))| TypeSummary { name, tensors: *tensors, bytes: *bytes })
            .collect();
        let (tensors, bytes) = (types.iter().map(|t| t.tensors).sum(), types.iter().map(|t| t.bytes).sum());
        (!types.is_empty()).then_some(Self { family, types, tensors, bytes })
    }
}
