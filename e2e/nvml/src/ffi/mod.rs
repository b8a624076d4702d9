//! The C functions, as nvml.h declares them.
//!
//! Handles are numbers and carry what they name, so that no process keeps anything: a device by its index, an instance by its
//! IDs. Every function is counted, may be told to fail, and may be the last of its process.
#![expect(
    unsafe_code,
    reason = "C functions under C names, which write through C pointers"
)]
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "each function here is unsafe for one reason: its caller's pointers are null or valid, as nvml.h asks"
)]
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    non_snake_case,
    reason = "nvml.h documents them"
)]

mod device;
mod instance;

use std::ffi::{c_char, c_uint};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, process, ptr};

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use crate::driver::code;
use crate::state::{self, Gpu, State, Write};
use crate::{KILL_VARIABLE, STATE_FILE, STATE_VARIABLE, procfs};

/// One call: counted, then failed as scripted or carried out.
fn call(function: &str, run: impl FnOnce(&mut State) -> Result<(), u32>) -> nvmlReturn_t {
    let Some(path) = state_file() else {
        return code::DRIVER_NOT_LOADED;
    };
    let mut count = 0;
    let answer = state::with(&path, |state| {
        *state.calls.entry(function.to_owned()).or_default() += 1;
        // Not in this library's own memory: programs unload it and load it again.
        let calls = state.processes.entry(process::id()).or_default();
        *calls += 1;
        count = *calls;
        scripted(state, function).map_or_else(|| run(state), Err)
    });
    let answer = match answer {
        Ok(answer) => answer.err().unwrap_or(0),
        Err(_) => code::DRIVER_NOT_LOADED,
    };
    let last = env::var(KILL_VARIABLE)
        .ok()
        .and_then(|last| last.parse().ok());
    if last == Some(count) {
        // Not an exit: nothing of this process may run any more.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
    answer
}

/// The state file: what the environment names, else what lies beside this library.
fn state_file() -> Option<PathBuf> {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        if let Some(path) = env::var_os(STATE_VARIABLE) {
            return Some(path.into());
        }
        let here = (device::nvmlInit_v2 as *const ()).addr();
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let library = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let from = usize::from_str_radix(from, 16).ok()?;
            let to = usize::from_str_radix(to, 16).ok()?;
            (from..to)
                .contains(&here)
                .then(|| rest.find('/').and_then(|at| rest.get(at..)))?
        })?;
        Some(Path::new(library).with_file_name(STATE_FILE))
    };
    FILE.get_or_init(find).clone()
}

/// The code that this call is to answer, if it is to fail.
fn scripted(state: &mut State, function: &str) -> Option<u32> {
    let fault = state.faults.iter_mut().find(|fault| {
        fault
            .function
            .as_deref()
            .is_none_or(|name| name == function)
    })?;
    if fault.after > 0 {
        fault.after -= 1;
        return None;
    }
    fault.times -= 1;
    let code = fault.code;
    state.faults.retain(|fault| fault.times > 0);
    Some(code)
}

/// A call that changes one GPU: on record, whatever becomes of it.
fn write<T>(
    function: &str,
    index: u32,
    asked: String,
    run: impl FnOnce(&mut Gpu) -> Result<T, u32>,
    give: impl FnOnce(T),
) -> nvmlReturn_t {
    let mut minor = u32::MAX;
    let mut ran = false;
    let code = call(function, |state| {
        ran = true;
        let privileged = state.privileged;
        let gpu = device(state, index)?;
        minor = gpu.minor;
        let answer = if privileged {
            run(gpu)
        } else {
            Err(code::NO_PERMISSION)
        };
        record(state, function, minor, asked.clone(), answer.as_ref().err());
        // A host whose procfs lags behind would make every test after this a riddle.
        procfs::follow(state).map_err(|_| code::OPERATING_SYSTEM)?;
        answer.map(give)
    });
    if !ran && let Some(path) = state_file() {
        // It failed as scripted, and is on record all the same. The file was there a moment ago.
        let _ = state::with(&path, |state| {
            let minor = state
                .gpus
                .get(index as usize)
                .map_or(minor, |gpu| gpu.minor);
            record(state, function, minor, asked, Some(&code));
        });
    }
    code
}

fn record(state: &mut State, function: &str, gpu: u32, asked: String, code: Option<&u32>) {
    state.writes.push(Write {
        function: function.to_owned(),
        gpu,
        asked,
        code: code.copied().unwrap_or(0),
        at: state.calls.values().sum(),
    });
}

fn device(state: &mut State, index: u32) -> Result<&mut Gpu, u32> {
    let gpu = state
        .gpus
        .get_mut(index as usize)
        .ok_or(code::INVALID_ARGUMENT)?;
    if gpu.lost {
        return Err(code::GPU_IS_LOST);
    }
    Ok(gpu)
}

// A handle is never null: its top half says what it is, the rest which.
const DEVICE: usize = 0xD << 32;
const INSTANCE: usize = 0x6 << 32;
const COMPUTE: usize = 0xC << 32;

fn handle<T>(kind: usize, index: u32, instance: u32, compute: u32) -> *mut T {
    ptr::without_provenance_mut(
        kind | (index as usize) << 16 | (instance as usize) << 8 | compute as usize,
    )
}

/// Index, instance and compute instance that a handle names.
fn named<T>(handle: *mut T) -> (u32, u32, u32) {
    let number = handle.addr();
    let byte = |shift: usize| (number >> shift & 0xff) as u32;
    (byte(16), byte(8), byte(0))
}

unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        to.write(value);
    }
}

unsafe fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), u32> {
    if text.len() >= length as usize {
        return Err(code::INSUFFICIENT_SIZE);
    }
    for (at, byte) in text.bytes().chain([0]).enumerate() {
        to.add(at).write(byte.cast_signed());
    }
    Ok(())
}
