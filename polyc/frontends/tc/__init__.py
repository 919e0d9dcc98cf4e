"""The `.tc` language: text to Programs."""

from polyc.frontends.tc.parser import parse_tc
from polyc.frontends.tc.read import TcResult, read_tc, read_tc_with_warnings

__all__ = ["TcResult", "parse_tc", "read_tc", "read_tc_with_warnings"]
