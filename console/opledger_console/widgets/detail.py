"""One operation, explained: where it is, why, what happens next, what a person may do, and how it came there."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from opledger_console.text import line
from opledger_console.views import GLYPHS, Detail, next_words, short_id


class DetailPane(VerticalScroll):
    """The lower half of the operations screen."""

    DEFAULT_CSS = """
    DetailPane { height: 1fr; border-top: solid $primary; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static("", id="detail", markup=False)

    def show(self, detail: Detail | None) -> None:
        """Draw one operation; None clears."""
        self.query_one("#detail", Static).update(Text("") if detail is None else _drawn(detail))


def _drawn(detail: Detail) -> Text:
    op = detail.operation
    text = Text()
    text.append(f"{GLYPHS[op.state]} {short_id(op.operation_id)}  ", style="bold")
    text.append(op.state.value, style="bold")
    text.append("   provider: ")
    text.append_text(line(op.remote_state or "(nothing yet)", limit=40))
    text.append("   job: ")
    text.append_text(line(op.remote_job_id or "(none)", limit=60))
    text.append("\n")
    text.append_text(line(detail.explanation.why, limit=400))
    following = next_words(op, detail.taken_at)
    # Why it stands still says the same, where it does.
    if following and detail.explanation.blocked_by is None:
        text.append("\nnext: ", style="bold")
        text.append_text(line(following, limit=300))
    if detail.explanation.choices:
        text.append("\nv decides: ", style="bold")
        text.append_text(line(", ".join(option.choice.value for option in detail.explanation.choices)))
    for event in detail.history:
        text.append(f"\n{event.at:%H:%M:%S}Z ", style="dim")
        text.append(f"{event.from_state or '·'} → {event.to_state}  ")
        text.append(f"{event.kind} ", style="bold")
        data = event.data or {}
        text.append_text(line(event.reason or data.get("why") or data.get("remote_state") or event.cause, limit=200))
    return text
