//! Tables in the look of `kubectl get`.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Lays out rows under a header; numbers may be aligned to the right by column index. Returns one line per row, the header
/// first unless it is suppressed.
pub(crate) fn lines(
    header: &[&str],
    rows: Vec<Vec<String>>,
    right: &[usize],
    no_headers: bool,
) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    if !no_headers {
        table.set_header(header.iter().copied());
    }
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 3));
        if right.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
        .to_string()
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_have_no_trailing_blanks() {
        let rows = vec![
            vec!["a".to_owned(), "12".to_owned()],
            vec!["longer".to_owned(), "3".to_owned()],
        ];
        assert_eq!(
            lines(&["NAME", "N"], rows.clone(), &[1], false),
            vec!["NAME      N", "a        12", "longer    3"]
        );
        assert_eq!(
            lines(&["NAME", "N"], rows, &[], true),
            vec!["a        12", "longer   3"]
        );
        assert!(lines(&["NAME"], Vec::new(), &[], false).is_empty());
    }
}
