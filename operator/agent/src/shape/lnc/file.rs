//! The setting's file: read by AWS's tools, appended to by launch templates, edited by people.

/// Keys of the setting: the documented one and its older alias.
pub const KEYS: [&str; 2] = ["NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_VIRTUAL_CORE_SIZE"];

/// The file's text with the setting in it once, where it first stood or at the end. Everything that is not the setting stays,
/// comments included, and every line gets its newline.
#[must_use]
pub fn with_setting(text: &str, value: u8) -> String {
    let [key, _] = KEYS;
    let mut setting = Some(format!("{key}={value}\n"));
    let mut written = String::with_capacity(text.len() + 32);
    for line in text.lines() {
        let is_comment = line.trim_start().starts_with('#');
        let rest = if is_comment {
            None
        } else {
            without_settings(line)
        };
        let Some(rest) = rest else {
            written.push_str(line);
            written.push('\n');
            continue;
        };
        written.push_str(&setting.take().unwrap_or_default());
        // What stood beside a setting on its line, but for the shell's word before one.
        if !matches!(rest.trim(), "" | "export" | ";") {
            written.push_str(rest.trim_end());
            written.push('\n');
        }
    }
    written.push_str(&setting.unwrap_or_default());
    written
}

/// The line without any setting; `None` when it holds none. AWS's snippet appends without a newline, so two on one line are real.
fn without_settings(line: &str) -> Option<String> {
    let mut rest = line;
    let mut left = String::new();
    let mut found = false;
    while let Some((before, after)) = next_setting(rest) {
        left.push_str(before);
        rest = after;
        found = true;
    }
    left.push_str(rest);
    found.then_some(left)
}

/// What stands before and after the first setting.
fn next_setting(text: &str) -> Option<(&str, &str)> {
    let starts = KEYS.iter().flat_map(|key| {
        text.match_indices(key)
            .map(|(at, key)| (at, at + key.len()))
    });
    let mut starts: Vec<_> = starts.collect();
    starts.sort_unstable();
    starts.into_iter().find_map(|(at, end)| {
        let (before, from_key) = text.split_at_checked(at)?;
        let (_, value) = from_key.split_at_checked(end - at)?;
        let value = value.trim_start().strip_prefix('=')?.trim_start();
        Some((before, after_value(value)))
    })
}

/// What follows a value: a quoted text, or all up to a blank, a semicolon or the next key.
fn after_value(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some((_, after)) = value
            .strip_prefix(quote)
            .and_then(|quoted| quoted.split_once(quote))
        {
            return after;
        }
    }
    let end = value
        .find(|char: char| char.is_whitespace() || char == ';')
        .unwrap_or(value.len());
    let key = KEYS.iter().filter_map(|key| value.find(key)).min();
    let end = key.map_or(end, |key| key.min(end));
    value.get(end..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_newline_duplicates_and_the_alias_end_in_one_line() {
        for text in [
            "",
            "\n",
            "NEURON_LOGICAL_NC_CONFIG=1",
            "NEURON_LOGICAL_NC_CONFIG=1\n",
            "NEURON_LOGICAL_NC_CONFIG=1NEURON_LOGICAL_NC_CONFIG=2NEURON_LOGICAL_NC_CONFIG=1",
            "NEURON_RT_VIRTUAL_CORE_SIZE=2\nNEURON_LOGICAL_NC_CONFIG=1\n",
            "export NEURON_LOGICAL_NC_CONFIG=\"1\"\n",
            "NEURON_LOGICAL_NC_CONFIG = '1'",
            "NEURON_LOGICAL_NC_CONFIG=one",
            "NEURON_LOGICAL_NC_CONFIG=",
        ] {
            let written = with_setting(text, 2);
            let kept = written.trim_start_matches('\n');
            assert_eq!(kept, "NEURON_LOGICAL_NC_CONFIG=2\n", "{text:?}");
        }
    }

    #[test]
    fn foreign_lines_and_comments_stay_where_they_are() {
        let text = "# NEURON_LOGICAL_NC_CONFIG=1 was here\nA=1\nNEURON_LOGICAL_NC_CONFIG=1 B=2\nMY_NEURON_NOTE=x\nC=3";
        assert_eq!(
            with_setting(text, 2),
            "# NEURON_LOGICAL_NC_CONFIG=1 was here\nA=1\nNEURON_LOGICAL_NC_CONFIG=2\n B=2\nMY_NEURON_NOTE=x\nC=3\n"
        );
    }

    #[test]
    fn a_key_that_is_only_spoken_of_is_no_setting() {
        let text = "NOTE NEURON_LOGICAL_NC_CONFIG is ours\n";
        assert_eq!(
            with_setting(text, 1),
            "NOTE NEURON_LOGICAL_NC_CONFIG is ours\nNEURON_LOGICAL_NC_CONFIG=1\n"
        );
    }

    #[test]
    fn writing_twice_is_writing_once() {
        for text in ["", "A=1\nNEURON_RT_VIRTUAL_CORE_SIZE=1", "# c\n\n\nX"] {
            for value in [1, 2] {
                let once = with_setting(text, value);
                assert_eq!(with_setting(&once, value), once);
                assert_eq!(
                    once.matches(&format!("NEURON_LOGICAL_NC_CONFIG={value}\n"))
                        .count(),
                    1
                );
            }
        }
    }
}
