"""The pages: a local web application, or one file, that shows a comparison as overview and graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison


class Pages:
    """Serves a comparison to a browser on this machine, or writes it as one file."""

    name = "web"
    file_name = "pages.html"

    def render(self, comparison: Comparison) -> str:
        """Gives the pages as one self-contained file.

        Raises:
            MsprobeError: The pages are not built in this checkout.
        """
        from msprobe.visualizers.web.export import export
        from msprobe.visualizers.web.workspace import View

        return export(comparison, View(comparison))

    def serve(  # noqa: PLR0913 -- one keyword for each option of the command
        self,
        comparison: Comparison | None,
        *,
        runs: Sequence[Path] = (),
        judge: Callable[[Path], Comparison] | None = None,
        mapping: Path | None = None,
        save_to: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        ready: Callable[[str], None] = print,
    ) -> None:
        """Serves the pages until interrupted.

        Args:
            comparison: What is shown; None when one run alone is looked at.
            runs: The runs whose trends are shown, the candidate first.
            judge: Compares the runs again under another mapping file; without it nothing can be matched by hand.
            mapping: The mapping file that the comparison was made with.
            save_to: Where the reader may save the mapping; nothing else is written.
            host: The interface to listen on.
            port: The port; 0 for any.
            ready: Gets the address to open, with its token.

        Raises:
            MsprobeError: The port is taken, or the pages are not built.
        """
        from msprobe.visualizers.web.serving import serve
        from msprobe.visualizers.web.workspace import Workspace

        workspace = Workspace(comparison, runs=runs, judge=judge, mapping=mapping, save_to=save_to)
        serve(workspace, host=host, port=port, ready=ready)
