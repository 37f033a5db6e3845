"""Reports in the console, in Chromium: listed, opened, and their plots drawn although they may ask nobody."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go
import pytest
from tests.interop.chromium import CHROMIUM, Page
from tests.interop.conftest import BrokerFactory
from tests.interop.console_stage import look

from headway.pipeline.report.html import Document

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install -y chromium-headless-shell")


def test_a_report_is_listed_and_its_plots_are_drawn(start: BrokerFactory, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    house = start("", server={"reports": str(folder)})
    document = Document("health", "How they are doing", "All are well.")
    document.section("A plot")
    document.plot(go.Figure(go.Bar(x=["a"], y=[1]), go.Layout(height=300)), "A bar.", "A bar")
    document.write(folder / "of today" / "<i>report.html")

    async def story(page: Page) -> None:
        await page.size(400, 800)
        await page.open(f"{house.admin}/#/reports")
        await page.until("document.querySelector('main tbody a')?.textContent === 'of today/<i>report.html'")
        assert "Health" in await page.value("document.querySelector('main tbody').textContent")
        assert await page.value("document.documentElement.scrollWidth <= innerWidth")
        await page.open(f"{house.admin}/v1/reports/of%20today/%3Ci%3Ereport.html")
        await page.until("document.querySelector('.plot svg') !== null")
        assert await page.value("window.origin") == "null", "it has no origin, so no login either"
        assert page.complaints == []

    look(tmp_path / "browser", story)


def test_without_a_folder_the_console_says_how_to_make_a_report(start: BrokerFactory, tmp_path: Path) -> None:
    house = start("")

    async def story(page: Page) -> None:
        await page.open(f"{house.admin}/#/reports")
        await page.until("document.querySelector('main').textContent.includes('knows no folder of reports')")
        told = await page.value("document.querySelector('main').textContent")
        assert "headway pipeline health --lake LAKE --out REPORTS/health" in told
        assert 'reports = "REPORTS"' in told

    look(tmp_path, story)
