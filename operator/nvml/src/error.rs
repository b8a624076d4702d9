//! What can go wrong in a call.

use std::path::PathBuf;

/// Why a call gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No file of that name, nor a driver below that root.
    #[error("there is no libnvidia-ml.so.1 at or below {0}: is the NVIDIA driver installed there?")]
    NotFound(PathBuf),
    /// The library is there and cannot be loaded.
    #[error("{path} cannot be loaded: {problem}")]
    Load {
        /// The file.
        path: PathBuf,
        /// The loader's words.
        problem: String,
    },
    /// The library is too old for this call.
    #[error("this driver's library has no {0}")]
    Missing(&'static str),
    /// NVML refused.
    #[error("{call} answered {code}")]
    Refused {
        /// Name of the C function.
        call: &'static str,
        /// Its answer.
        code: Code,
    },
    /// NVML answered with something that its documentation rules out.
    #[error("{call} answered {found}")]
    Nonsense {
        /// Name of the C function.
        call: &'static str,
        /// What it was.
        found: String,
    },
}

impl Error {
    /// NVML's code, where NVML refused.
    #[must_use]
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::NotFound(_) | Self::Load { .. } | Self::Missing(_) | Self::Nonsense { .. } => {
                None
            }
        }
    }

    /// Whether NVML refused with this code.
    #[must_use]
    pub fn is(&self, code: Code) -> bool {
        self.code() == Some(code)
    }

    /// Whether the call does not exist here: for this GPU, or in this driver's library.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Missing(_))
            || self.is(Code::NotSupported)
            || self.is(Code::FunctionNotFound)
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $constant:literal;)*) => {
        /// NVML's return codes (`nvmlReturn_t`, nvml.h 13.3).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
            /// One that this program does not know.
            Other(u32),
        }

        impl Code {
            /// The code with this number. 0 is success and no code.
            #[must_use]
            pub const fn from_number(number: u32) -> Self {
                match number {
                    $($number => Self::$name,)*
                    other => Self::Other(other),
                }
            }

            /// NVML's number.
            #[must_use]
            pub const fn number(self) -> u32 {
                match self {
                    $(Self::$name => $number,)*
                    Self::Other(other) => other,
                }
            }

            /// NVML's constant without its `NVML_ERROR_`.
            #[must_use]
            pub const fn constant(self) -> &'static str {
                match self {
                    $(Self::$name => $constant,)*
                    Self::Other(_) => "an unknown code",
                }
            }
        }
    };
}

codes! {
    /// The library was not initialised.
    Uninitialized = 1, "UNINITIALIZED";
    /// A number of the wrong space, a placement that is not offered, the end of an enumeration.
    InvalidArgument = 2, "INVALID_ARGUMENT";
    /// Not on this GPU, or not in this mode.
    NotSupported = 3, "NOT_SUPPORTED";
    /// The caller may not do this.
    NoPermission = 4, "NO_PERMISSION";
    /// No object with this ID.
    NotFound = 6, "NOT_FOUND";
    /// The buffer is too small.
    InsufficientSize = 7, "INSUFFICIENT_SIZE";
    /// No driver.
    DriverNotLoaded = 9, "DRIVER_NOT_LOADED";
    /// The driver took too long.
    Timeout = 10, "TIMEOUT";
    /// The library's own loader found no such function.
    FunctionNotFound = 13, "FUNCTION_NOT_FOUND";
    /// The GPU fell off the bus.
    GpuIsLost = 15, "GPU_IS_LOST";
    /// The GPU must be reset.
    ResetRequired = 16, "RESET_REQUIRED";
    /// The operating system blocked it.
    OperatingSystem = 17, "OPERATING_SYSTEM";
    /// Library and kernel module are of different drivers.
    VersionMismatch = 18, "LIB_RM_VERSION_MISMATCH";
    /// Somebody uses it: a process, a compute instance, a monitoring client.
    InUse = 19, "IN_USE";
    /// Out of memory.
    Memory = 20, "MEMORY";
    /// The slots are taken, or the driver sees no place.
    InsufficientResources = 23, "INSUFFICIENT_RESOURCES";
    /// The structure's version is not known to this driver.
    ArgumentVersionMismatch = 25, "ARGUMENT_VERSION_MISMATCH";
    /// Not ready yet.
    NotReady = 27, "NOT_READY";
    /// No such GPU.
    GpuNotFound = 28, "GPU_NOT_FOUND";
    /// Not in this state.
    InvalidState = 29, "INVALID_STATE";
    /// The driver does not know either.
    Unknown = 999, "UNKNOWN";
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.constant(), self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_the_way_through_the_enumeration() {
        for number in 1..1200 {
            assert_eq!(Code::from_number(number).number(), number);
        }
        assert_eq!(Code::from_number(23), Code::InsufficientResources);
        assert_eq!(Code::InUse.to_string(), "IN_USE (19)");
        assert_eq!(Code::Other(77).to_string(), "an unknown code (77)");
    }
}
