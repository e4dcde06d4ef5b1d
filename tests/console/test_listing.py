"""The list with its cursor on a key: what moves it, what must not, and what it draws."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

from opledger_console.views import Row
from opledger_console.widgets.listing import Listing

HOSTILE = "\x1b[2J\x9b31m[/red][@click=app.quit]\u202e\u200bx[bold"


class Shell(App[None]):
    """One list, and what it said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str | None, str | None]] = []

    def compose(self) -> ComposeResult:
        """One list."""
        yield Listing([("what", 8, 0), ("who", 6, 60), ("why", 0, 0)], empty="nothing is here")

    def on_listing_moved(self, message: Listing.Moved) -> None:
        """Remember where the cursor went."""
        self.said.append(("moved", message.key, message.instead_of))

    def on_listing_picked(self, message: Listing.Picked) -> None:
        """Remember what was opened."""
        self.said.append(("picked", message.key, None))

    @property
    def listing(self) -> Listing:
        """The list."""
        return self.query_one(Listing)


def rows(*keys: str) -> list[Row]:
    """Rows with these keys."""
    return [Row(key, (key, "ana", f"why {key}"), "human") for key in keys]


def many(count: int) -> list[Row]:
    """More rows than fit."""
    return rows(*(f"k{number:04}" for number in range(count)))


def text(app: App[None]) -> list[str]:
    """What is on the screen, line by line."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


async def test_keys_move_the_cursor_and_open() -> None:
    """Every key of the list does what it says, also at both ends."""
    app = Shell()
    async with app.run_test(size=(40, 10)) as pilot:
        app.listing.show(many(30))
        app.listing.focus()
        expected = [
            ("j", "k0001"), ("down", "k0002"), ("k", "k0001"), ("up", "k0000"), ("up", "k0000"), ("pagedown", "k0008"),
            ("pageup", "k0000"), ("G", "k0029"), ("j", "k0029"), ("g", "k0000"), ("end", "k0029"), ("home", "k0000"),
        ]  # fmt: skip
        for key, place in expected:
            await pilot.press(key)
            assert app.listing.key == place, key
            assert any(place in line for line in text(app)), f"{key}: the cursor is off the screen"
        await pilot.press("enter")
        assert app.said[-1] == ("picked", "k0000", None)


async def test_the_cursor_stays_with_its_row_whatever_happens_around_it() -> None:
    """Rows that come above, go, or change places do not move what a key acts on (B52)."""
    app = Shell()
    async with app.run_test(size=(80, 24)) as pilot:
        app.listing.show(rows("a", "b", "c"))
        app.listing.focus()
        await pilot.press("j")
        app.said.clear()
        app.listing.show(rows("x", "y", "a", "b", "c"))
        assert app.listing.key == "b"
        app.listing.show(rows("c", "b"))
        await pilot.pause()
        assert app.listing.key == "b"
        assert app.said == []


async def test_a_row_that_is_gone_hands_the_cursor_on_and_says_so() -> None:
    """The next one gets it, the last one where there is none behind, nobody in an empty list."""
    app = Shell()
    async with app.run_test(size=(80, 24)) as pilot:
        app.listing.show(rows("a", "b", "c"))
        app.listing.focus()
        await pilot.press("j")
        app.said.clear()
        app.listing.show(rows("a", "c"))
        app.listing.show(rows("a"))
        app.listing.show([])
        await pilot.pause()
        assert app.said == [("moved", "c", "b"), ("moved", "a", "c"), ("moved", None, "a")]
        assert "nothing is here" in text(app)[1]
        await pilot.press("enter", "j", "G")
        assert len(app.said) == 3


async def test_a_scrolled_list_keeps_the_cursor_on_its_line() -> None:
    """Nothing jumps under the eyes of whoever reads while rows come in above."""
    app = Shell()
    async with app.run_test(size=(80, 12)) as pilot:
        app.listing.show(many(100))
        app.listing.focus()
        await pilot.press("G", "k", "k")
        line = next(number for number, shown in enumerate(text(app)) if "k0097" in shown)
        app.listing.show([*rows("new1", "new2", "new3"), *many(100)])
        await pilot.pause()
        assert "k0097" in text(app)[line]
        app.listing.show([*many(90), *many(100)[95:]])
        await pilot.pause()
        assert "k0097" in text(app)[line]


async def test_only_lines_that_say_something_else_are_drawn_again() -> None:
    """A countdown in one of many rows costs one line over a slow connection."""
    app = Shell()
    async with app.run_test(size=(80, 24)) as pilot:
        app.listing.show(rows("a", "b", "c", "d"))
        await pilot.pause()
        drawn: list[int] = []
        render = app.listing.render_line

        def counting(y: int) -> object:
            drawn.append(y)
            return render(y)

        app.listing.render_line = counting  # type: ignore[method-assign,assignment]
        changed = rows("a", "b", "c", "d")
        changed[2] = Row("c", ("c", "ana", "something else"), "human")
        app.listing.show(changed)
        await pilot.pause()
        assert drawn == [3]
        assert "something else" in text(app)[3]


async def test_a_click_chooses_and_a_second_one_opens() -> None:
    """Nothing needs a mouse, and a first click never opens; nor does one on the row that moved under the mouse."""
    app = Shell()
    async with app.run_test(size=(80, 24)) as pilot:
        app.listing.show(rows("a", "b", "c"))
        await pilot.click(Listing, offset=(3, 1))
        await pilot.click(Listing, offset=(3, 2))
        assert app.said == [("moved", "a", None), ("moved", "b", None)]
        app.listing.show(rows("b", "a", "c"))
        await pilot.click(Listing, offset=(3, 2))
        assert app.said[-1] == ("moved", "a", None)
        await pilot.click(Listing, offset=(3, 2))
        assert app.said[-1] == ("picked", "a", None)
        await pilot.click(Listing, offset=(3, 0))
        await pilot.click(Listing, offset=(3, 9))
        assert app.said[-1] == ("picked", "a", None)


@pytest.mark.parametrize("size", [(1, 1), (10, 3), (40, 10), (120, 40)])
async def test_hostile_cells_are_drawn_as_text_at_every_size(size: tuple[int, int]) -> None:
    """No control byte and no markup gets through a cell, and no size breaks a line."""
    app = Shell()
    async with app.run_test(size=size) as pilot:
        app.listing.show([Row(HOSTILE, (HOSTILE, HOSTILE, HOSTILE), "bad", dim=True)])
        await pilot.pause()
        shown = text(app)
        assert all(len(line) <= size[0] for line in shown)
        assert not {char for line in shown for char in line if ord(char) < 32 or char in "\x7f\x9b\u202e\u200b"}
        if size[0] >= 40:
            assert "[/red]" in shown[1]


async def test_columns_that_find_no_room_are_left_out() -> None:
    """In a narrow list the why stands nearer; in a wide one who asked comes in."""
    app = Shell()
    async with app.run_test(size=(50, 10)) as pilot:
        app.listing.show(rows("a"))
        await pilot.pause()
        assert "who" not in text(app)[0]
        await pilot.resize_terminal(70, 10)
        await pilot.pause()
        assert "who" in text(app)[0]
        assert "ana" in text(app)[1]


async def test_what_is_cut_beside_the_scroll_bar_ends_in_an_ellipsis() -> None:
    """A name that is cut without a sign looks like another, shorter name."""
    app = Shell()
    async with app.run_test(size=(40, 10)) as pilot:
        app.listing.show([Row(f"k{number}", ("k", "ana", "x" * 80), "human") for number in range(30)])
        await pilot.pause()
        assert app.listing.scrollable_content_region.width == 39
        assert [line[:39].rstrip()[-1] for line in text(app)[1:9]] == ["…"] * 8
