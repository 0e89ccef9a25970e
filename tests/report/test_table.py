from dataclasses import replace

from fedrun.report.table import Table, html, latex, render

TABLE = Table("A & B", ("", "value"), (("x|y", "1.0 ± 0.5"), ("<b>", ">200")), above=("Over 5 seeds.",), notes=("End",))


def test_markdown():
    assert render([TABLE], "markdown").splitlines() == [
        "## A & B",
        "",
        "Over 5 seeds.",
        "",
        "|      |     value |",
        "| ---- | --------: |",
        "| x\\|y | 1.0 ± 0.5 |",
        "| <b>  |      >200 |",
        "",
        "End",
    ]


def test_a_column_of_remarks_is_flush_left():
    table = Table("T", ("key", "value", "remark"), (("a", "1", "b"),), remarks=True)
    assert render([table], "markdown").splitlines()[2:] == [
        "| key | value | remark |",
        "| --- | ----: | ------ |",
        "| a   |     1 | b      |",
    ]
    assert r"\begin{tabular}{lrp{.4\linewidth}}" in latex(table)


def test_a_line_break_in_a_value_does_not_break_the_table():
    lines = render([Table("T", ("key", "value"), (("a\nb\n", "c\r\nd"),))], "markdown").splitlines()
    assert lines[2:] == ["| key | value |", "| --- | ----: |", "| a b |   c d |"]


def test_latex():
    assert latex(TABLE).splitlines() == [
        r"\begin{table}",
        r"  \centering",
        r"  \caption{A \& B. Over 5 seeds. End.}",
        r"  \begin{tabular}{lr}",
        r"    \toprule",
        r"     & value \\",
        r"    \midrule",
        r"    x\textbar{}y & 1.0 $\pm$ 0.5 \\",
        r"    $<$b$>$ & $>$200 \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    assert r"\textbackslash{}\{\_\^{}" not in latex(TABLE)
    assert r"privacy $\epsilon$, R$^2$" in latex(Table("privacy ε, R²", ("",), ()))
    assert r"\textbackslash{}a\{\_" in latex(Table("\\a{_", ("",), ()))


def test_latex_takes_no_argument_from_a_cell_and_joins_no_dashes():
    """A bracket or a star behind the end of a row would be its argument; two dashes would be printed as one."""
    table = Table("fedrun --config-dir own", ("[a]", "b"), (("[200,100]", "[1]"), ("*", "-0.5"), ("a|b", "1--2")))
    lines = latex(table).splitlines()
    assert lines[2] == r"  \caption{fedrun -{}-config-dir own.}"
    assert [lines[5], *lines[7:10]] == [
        r"    {}[a] & b \\",
        r"    {}[200,100] & [1] \\",
        r"    {}* & $-$0.5 \\",
        r"    a\textbar{}b & 1-{}-2 \\",
    ]


def test_html_escapes():
    text = html(TABLE)
    assert '<th scope="row">&lt;b&gt;</th><td>&gt;200</td>' in text
    assert "<h2>A &amp; B</h2>" in text and '<p class="note">End</p>' in text


def test_several_tables():
    """Parts of a section stand below its title and what is above the first; LaTeX names the section in each caption."""
    first, second = (replace(TABLE, above=(), notes=(), part=part) for part in ("x 1", "x 2"))
    first = replace(first, above=("Over 5 seeds.",))
    headings = [line for line in render([first, second, replace(TABLE, title="C")], "markdown").splitlines() if line]
    assert [line for line in headings if not line.startswith("|")] == [
        *("## A & B", "Over 5 seeds.", "### x 1", "### x 2"),
        *("## C", "Over 5 seeds.", "End"),
    ]
    assert r"\caption{A \& B, x 2.}" in render([first, second], "latex")
    assert "<h2>A &amp; B, x 2</h2>" in html(second)
    assert render([TABLE], "latex").startswith("% needs \\usepackage{booktabs}\n\n\\begin{table}")
