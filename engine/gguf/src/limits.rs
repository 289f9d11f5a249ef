//! What opening a set may cost, whatever its bytes claim: under a second and under 64 MB beside the mapped files.
//!
//! Every count is first held against the bytes left in its file, so a claim of 2^60 items costs nothing. These caps bound
//! what honest bytes can add up to. All are far above the shipped set (a header of 10.9 MB, 67 keys, 1,224 tensors,
//! 4 shards).

/// Header bytes of one set, all shards together. Strings and arrays are copied out of the mapping once and take in
/// memory at most what they take in the file, so this is also their bound in memory.
pub const MAX_HEADER_BYTES: u64 = 32 << 20;

/// Keys of one file. An entry costs about 150 bytes in memory and may take only 13 in the file, hence its own cap.
pub const MAX_KEYS: u64 = 1 << 16;

/// Tensors of one set. An entry costs about 200 bytes in memory and may take only 32 in the file.
pub const MAX_TENSORS: u64 = 1 << 16;

/// Bytes of one key or tensor name, the container's own rule for keys. Names are copied into errors.
pub const MAX_NAME_BYTES: u64 = (1 << 16) - 1;

/// Shards of one set. Each is a file to open and a mapping to hold.
pub const MAX_SHARDS: u64 = 1 << 12;
