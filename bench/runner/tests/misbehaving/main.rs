//! Workers that cheat, fail and die, each refused by its name (engine-protocol-v1.md 7, benchd.md 6). This program is the
//! worker too: started as `runtime-worker`, it plays the one that its arguments name.

// Clippy knows tests by libtest's attribute, which these functions have not.
#![allow(clippy::unwrap_used)]

mod cheats;
mod deaths;
mod held;
mod legs;
mod residents;
mod worker;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// A test by the name that it has in its module.
macro_rules! trials {
    ($($module:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        vec![$($(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            $module::$name();
            Ok(())
        }),)+)+]
    };
}

fn main() -> ExitCode {
    let mut args = std::env::args();
    let role = args.nth(1).unwrap_or_default();
    let args: Vec<_> = args.collect();
    match role.as_str() {
        "runtime-worker" => return worker::play(&args),
        "resident" => return residents::play(&args),
        "serve-up" => return residents::serve_up(&args),
        _ => {}
    }
    let trials = trials! {
        cheats:
            an_honest_worker_is_believed_and_ends_with_success,
            each_way_to_cheat_a_session_is_refused_by_its_name,
            a_refused_session_answers_nothing_more,
            what_a_worker_may_say_of_itself_changes_no_clock,
            correctness_and_recording_run_on_a_session,
            a_raised_interrupt_ends_a_request_and_its_worker;
        deaths:
            a_worker_that_dies_at_any_step_is_named_and_leaves_nothing,
            a_worker_killed_from_outside_is_named_and_leaves_nothing;
        held:
            a_worker_finds_only_the_variables_it_is_given,
            a_worker_in_a_sandbox_reads_writes_and_reaches_nothing_else;
        legs:
            an_honest_leg_is_measured_by_our_clock_and_passes_its_gates,
            each_way_to_cheat_a_leg_is_refused_by_its_name,
            a_stream_of_a_candidate_is_collected_and_of_a_control_leg_refused,
            a_gate_that_rejects_ends_the_leg,
            a_worker_that_dies_at_any_step_of_a_leg_ends_it_by_name;
        residents:
            a_resident_is_started_known_and_gone_with_its_socket_and_ready_file,
            each_way_to_fail_as_a_resident_has_a_name_and_leaves_nothing,
            a_resident_left_running_is_stopped_by_whoever_knows_its_socket,
            a_leg_is_served_by_the_script_of_its_tree_and_leaves_nothing,
            each_way_to_fail_to_serve_has_a_name_and_leaves_nothing,
    };
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
