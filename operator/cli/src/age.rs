//! Ages, the way `kubectl get` prints them.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A span in seconds, in at most two units; two while the second one still says something.
pub(crate) fn short(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / MINUTE, seconds / HOUR, seconds / DAY);
    match seconds {
        ..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % MINUTE, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

/// The age of something. Clocks differ: what seems to lie ahead is new.
pub(crate) fn since(then: Timestamp, now: Timestamp) -> String {
    short(now.as_second().saturating_sub(then.as_second()))
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn ages_are_as_precise_as_their_size_warrants() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (600, "10m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (30_000, "8h"),
            (180_000, "2d2h"),
            (1_000_000, "11d"),
        ] {
            assert_eq!(short(seconds), text, "{seconds} seconds");
        }
    }
}
