from fedrun.report.table import Table, html, latex, markdown, render

TABLE = Table("A & B", ("", "value"), (("x|y", "1.0 ± 0.5"), ("<b>", ">200")), above=("Over 5 seeds.",), notes=("End",))


def test_markdown():
    assert markdown(TABLE).splitlines() == [
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


def test_a_line_break_in_a_value_does_not_break_the_table():
    lines = markdown(Table("T", ("key", "value"), (("a\nb\n", "c\r\nd"),))).splitlines()
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
        r"    x|y & 1.0 $\pm$ 0.5 \\",
        r"    $<$b$>$ & $>$200 \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    assert r"\textbackslash{}\{\_\^{}" not in latex(TABLE)
    assert r"privacy $\epsilon$, R$^2$" in latex(Table("privacy ε, R²", ("",), ()))
    assert r"\textbackslash{}a\{\_" in latex(Table("\\a{_", ("",), ()))


def test_html_escapes():
    text = html(TABLE)
    assert '<th scope="row">&lt;b&gt;</th><td>&gt;200</td>' in text
    assert "<h2>A &amp; B</h2>" in text and '<p class="note">End</p>' in text


def test_several_tables():
    assert render([TABLE, TABLE], "markdown").count("## A & B") == 2
    assert render([TABLE], "latex").startswith("% needs \\usepackage{booktabs}\n\n\\begin{table}")
