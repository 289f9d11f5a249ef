//! The benchmark's processes, clocks and machine. What the engine says is checked and never believed.
//!
//! Start at [`Launch`]: [`Launch::connect`] starts an untrusted worker and gives a [`WorkerSession`], on which
//! bench-core's gate, recording and replay run. All time is taken by this process around round trips (engine-protocol-v1.md
//! 8); a worker has no key to report any in. A worker starts with an environment built from nothing, in a process group and
//! a [`Sandbox`] of its own; whatever ends a session ends the whole group, and reaps it.
//!
//! [`run_leg`] times a leg on such workers, behind [`cool_gate`], and holds its windows and a prompt that nobody has seen
//! against each other. [`Served`] is a leg's resident, booted by the serve script of the leg's tree; [`Resident`] is what such a
//! script runs.
//!
//! No variable and no flag is read here. Every wait has a deadline and ends at an [`Interrupt`]. Refusals have names, see
//! [`SessionError::name`].

mod environment;
mod interrupt;
mod launch;
mod leg;
mod machine;
mod process;
mod resident;
mod sandbox;
mod session;
mod stderr;
mod stream;

pub use crate::{
    environment::{
        RESIDENT_SOCKET_VARIABLE, SOCKET_VARIABLES, WorkerEnvironment, inherited_resident_socket,
        inherited_worker_variables,
    },
    interrupt::{Interrupt, Interrupted},
    launch::{Deadlines, Launch},
    leg::{
        CrossCheck, FRESH_STEPS, FreshProbe, Gate, LegError, LegPhase, LegPlan, LegReport, PrefillFigure, Verify,
        Windows, certify, run_leg,
    },
    machine::{
        Clock, CommandThermometer, CoolError, CoolState, Demand, Device, DeviceLock, DeviceProcess, LockError,
        MachineError, NvidiaSmi, Quiet, QuietReport, Stamps, Thermometer, cool_gate, expect_alone, one_minute_load,
        wait_until_quiet,
    },
    resident::{
        Detached, Resident, ResidentError, ResidentFound, ResidentHello, ResidentPlan, ServeError, ServePlan, Served,
        Stopped, resident_hello, stop_resident,
    },
    sandbox::{Sandbox, SandboxReport},
    session::{
        BudgetError, DEFAULT_CEILING_SECONDS_PER_TOKEN, FreeRun, PhaseReport, Reply, SeedReply, SessionError,
        WorkerSession, check_response, run_budget,
    },
    stderr::MAX_STDERR_BYTES,
    stream::MAX_NOISE_BYTES,
};
