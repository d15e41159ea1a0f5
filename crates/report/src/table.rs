//! Tables whose columns line up, as Markdown that reads as plain text too or as plain text alone.

/// A table that is being filled.
pub(crate) struct Table {
    /// Whether each column is put to the right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; `>` before a name puts the column to the right.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let names = columns.iter().map(|name| name.trim_start_matches('>').to_owned()).collect();
        Self { right: columns.iter().map(|name| name.starts_with('>')).collect(), rows: vec![names] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Appends the table to `text`, as Markdown.
    pub(crate) fn write(&self, text: &mut String) {
        let widths = self.widths(3);
        for (at, row) in self.rows.iter().enumerate() {
            text.push('|');
            for (cell, padding, right) in self.cells(row, &widths) {
                let cell = if right { format!(" {padding}{cell} |") } else { format!(" {cell}{padding} |") };
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

    /// Appends the table to `text`, with nothing but spaces between its columns.
    pub(crate) fn write_plain(&self, text: &mut String) {
        let widths = self.widths(0);
        for row in &self.rows {
            let mut line = String::new();
            for (cell, padding, right) in self.cells(row, &widths) {
                let cell = if right { format!("{padding}{cell}  ") } else { format!("{cell}{padding}  ") };
                line.push_str(&cell);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }

    /// The widths of the columns. Counts characters. Wide ones (Chinese, emoji) shift their row in a terminal, and nothing else.
    fn widths(&self, least: usize) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(least)
        };
        (0..self.right.len()).map(width).collect()
    }

    /// The cells of a row, each with what it lacks to the width of its column and whether that comes before it.
    fn cells<'a>(
        &'a self,
        row: &'a [String],
        widths: &'a [usize],
    ) -> impl Iterator<Item = (&'a str, String, bool)> {
        row.iter()
            .zip(widths)
            .zip(&self.right)
            .map(|((cell, width), right)| (&**cell, " ".repeat(width - cell.chars().count()), *right))
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
        let mut text = String::new();
        table.write_plain(&mut text);
        assert_eq!(text, "   own  function\n12.5 %  `f`\n");
    }
}
