//! Colour, used sparingly: for what is wrong, what waits, what is well, and what is beside the point.

/// Whether and how text is coloured. Meaning never rests on colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// Write ANSI sequences.
    pub(crate) colour: bool,
}

impl Style {
    fn wrap(self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Wrong.
    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// Waiting; neither wrong nor done.
    pub(crate) fn waiting(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// Well.
    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Beside the point.
    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// A heading.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }
}
