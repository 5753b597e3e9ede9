import logging

import pytest

from assay_agent.daemon.seldom import SELDOM_SECONDS, SeldomLog


def test_a_text_that_repeats_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now, log = [0.0], logging.getLogger("assay_agent.test")
    seldom = SeldomLog(log, clock=lambda: now[0])
    with caplog.at_level(logging.INFO, log.name):
        for second in range(int(2 * SELDOM_SECONDS) + 1):
            now[0] = float(second)
            seldom.say(logging.ERROR, "no work for slot a: 100 % refused")
        seldom.say(logging.INFO, "no work for slot b: refused")
    said = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert said == [(logging.ERROR, "no work for slot a: 100 % refused")] * 3 + [
        (logging.INFO, "no work for slot b: refused")
    ]
