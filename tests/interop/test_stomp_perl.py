"""Perl's STOMP client (Net::Stomp): a queue with receipts and acknowledgements, and a topic."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.waiting import PATIENCE_S

PERL = r"""
use strict; use warnings; use Net::Stomp;
my ($port, $what, $count) = @ARGV;
my $stomp = Net::Stomp->new({hostname => '127.0.0.1', port => $port, reconnect_on_fork => 0});
my $said = $stomp->connect({login => 'ann', passcode => 'secret'});
die $said->command . ': ' . ($said->headers->{message} // '') if $said->command ne 'CONNECTED';
my $to = "/$what/perl";
sub subscribe { $stomp->subscribe({destination => $to, id => '1', ack => $what eq 'queue' ? 'client' : 'auto'}) }
subscribe() if $what eq 'topic';
for my $number (1 .. $count) {
    my $message = {destination => $to, body => "message $number", number => $number, persistent => 'true'};
    # Where it is subscribed, this client takes a message that comes before the receipt for a refusal.
    $what eq 'queue' ? ($stomp->send_with_receipt($message) or die 'no receipt') : $stomp->send($message);
}
subscribe() if $what eq 'queue';
for my $number (1 .. $count) {
    my $frame = $stomp->receive_frame({timeout => TIMEOUT}) or die "message $number did not come";
    print $frame->body, ' ', $frame->headers->{number}, "\n";
    $stomp->ack({frame => $frame}) if $what eq 'queue';
}
$stomp->disconnect;
""".replace("TIMEOUT", str(int(PATIENCE_S)))


def has_client() -> bool:
    try:
        return subprocess.run(["perl", "-MNet::Stomp", "-e", "1"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not has_client(), reason="apt-get install libnet-stomp-perl")


@pytest.fixture(scope="module")
def broker(start: BrokerFactory) -> Iterator[BrokerProcess]:
    process = start('[listeners.stomp]\nurl = "stomp://127.0.0.1:0"\nallow_anonymous = true\n')
    yield process
    process.stop()


def speak(broker: BrokerProcess, what: str, count: int) -> list[str]:
    """Sends so many messages, and returns those that came."""
    words = ["perl", "-e", PERL, str(broker.ports["stomp"]), what, str(count)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("what", ["queue", "topic"])
def test_what_is_sent_comes_in_order_with_its_headers(broker: BrokerProcess, what: str) -> None:
    assert speak(broker, what, 100) == [f"message {number} {number}" for number in range(1, 101)]
    assert speak(broker, what, 1) == ["message 1 1"], "what was acknowledged does not come again"
