//! Captured graphs.

use std::{any::Any, fmt, sync::Arc};

use cudarc::driver::sys;

use super::context::Context;
use crate::error::CudaError;

/// Launches that were captured once and are queued together. Keeps what they use alive.
pub(crate) struct Graph {
    context: Context,
    name: String,
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    _keep: Vec<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: handles of the driver, usable from any thread one at a time.
unsafe impl Send for Graph {}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph {{ {} }}", self.name)
    }
}

impl Graph {
    /// Owns `graph`, null if the capture failed.
    pub(super) fn new(
        context: &Context,
        name: &str,
        graph: sys::CUgraph,
        keep: Vec<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self, CudaError> {
        let made = Self { context: context.clone(), name: name.into(), graph, exec: std::ptr::null_mut(), _keep: keep };
        if graph.is_null() {
            let code = "nothing was captured".into();
            return Err(CudaError::Driver { call: format!("capturing `{name}`"), code });
        }
        Ok(made)
    }

    pub(super) fn instantiate(mut self) -> Result<Self, CudaError> {
        self.context.enter()?;
        // SAFETY: a captured graph; `exec` receives the instance.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&mut self.exec, self.graph, 0) };
        self.context.check(&format!("instantiating `{}`", self.name), code)?;
        Ok(self)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn raw(&self) -> sys::CUgraphExec {
        self.exec
    }

    /// Nodes it has.
    pub(crate) fn nodes(&self) -> Result<usize, CudaError> {
        self.context.enter()?;
        let mut count = 0;
        // SAFETY: a null list asks for the count alone.
        let code = unsafe { sys::cuGraphGetNodes(self.graph, std::ptr::null_mut(), &mut count) };
        self.context.check("cuGraphGetNodes", code)?;
        Ok(count)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.context.enter().is_err() {
            return;
        }
        if !self.exec.is_null() {
            // SAFETY: instantiated here and destroyed once; the driver waits for a replay under way.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
        if !self.graph.is_null() {
            // SAFETY: ours since the capture ended.
            let _ = unsafe { sys::cuGraphDestroy(self.graph) };
        }
    }
}
