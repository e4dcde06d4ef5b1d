"""All stories by name."""

from __future__ import annotations

from typing import Final

from tests.crashes.after import AFTER
from tests.crashes.core import CORE
from tests.crashes.creating import CREATING
from tests.crashes.life import Story
from tests.crashes.others import OTHERS
from tests.crashes.tasks import TASKS

STORIES: Final[dict[str, Story]] = {story.name: story for story in (*CORE, *CREATING, *OTHERS, *AFTER, *TASKS)}
