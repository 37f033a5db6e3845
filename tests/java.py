"""Options of the JVMs that tests start."""

from __future__ import annotations

PLAIN = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:NewRatio=1"
)
"""Every JVM of these tests lives for seconds: half of their time would go into compiling what is hardly run, and some
into looking for garbage whenever there are more classes. With that compiler alone, Java sets aside so little for what
is compiled that it would throw it away and compile it again, all the time."""
