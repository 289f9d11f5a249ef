//! The machine around a run.

mod cool;

pub use self::cool::{Clock, CoolError, CoolState, Demand, Thermometer, cool_gate};
