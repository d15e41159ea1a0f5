//! Tables of Markdown whose columns line up in plain text.

/// A table that is being filled.
pub(super) struct Table {
    /// Whether each column is put to the right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; `>` before a name puts the column to the right.
    pub(super) fn new(columns: &[&str]) -> Self {
        let names = columns.iter().map(|name| name.trim_start_matches('>').to_owned()).collect();
        Self { right: columns.iter().map(|name| name.starts_with('>')).collect(), rows: vec![names] }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Appends the table to `text`.
    pub(super) fn write(&self, text: &mut String) {
        // Counts characters. Wide ones (Chinese, emoji) shift their row in a terminal, and nothing else.
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
        };
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        for (at, row) in self.rows.iter().enumerate() {
            text.push('|');
            for ((cell, width), right) in row.iter().zip(&widths).zip(&self.right) {
                let padding = " ".repeat(width - cell.chars().count());
                let cell = if *right { format!(" {padding}{cell} |") } else { format!(" {cell}{padding} |") };
                text.push_str(&cell);
            }
            text.push('\n');
            if at == 0 {
                text.push('|');
                for (width, right) in widths.iter().zip(&self.right) {
                    let (line, end) = if *right { (width - 1, ":") } else { (*width, "") };
                    text.push_str(&format!(" {}{end} |", "-".repeat(line)));
                }
                text.push('\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[">own", "function"]);
        table.row(["12.5 %".to_owned(), "`f`".to_owned()]);
        let mut text = String::new();
        table.write(&mut text);
        assert_eq!(text, "|    own | function |\n| -----: | -------- |\n| 12.5 % | `f`      |\n");
    }
}
