"""What the server counts and measures, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536)
INPUTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Meters:
    """The meters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        known = {"registry": self.registry}
        self.requests = Counter("heedful_requests", "Requests that were answered.", ["route", "status"], **known)
        self.seconds = Histogram(
            "heedful_request_seconds",
            "From a request's head to the end of its answer.",
            ["route"],
            buckets=SECONDS,
            **known,
        )
        self.active = Gauge("heedful_requests_active", "Requests under way.", **known)
        self.rejected = Counter("heedful_rejected", "Requests that hit a limit.", ["limit"], **known)
        self.queue = Gauge("heedful_queue_inputs", "Texts or images that wait for a model.", ["model"], **known)
        self.waited = Histogram(
            "heedful_queue_seconds", "How long a request waited for its model.", ["model"], buckets=SECONDS, **known
        )
        self.tokens = Histogram("heedful_batch_tokens", "Tokens of a batch.", ["model"], buckets=TOKENS, **known)
        self.inputs = Histogram("heedful_batch_inputs", "Inputs of a batch.", ["model"], buckets=INPUTS, **known)
        self.computed = Histogram(
            "heedful_batch_seconds", "How long a model took over a batch.", ["model"], buckets=SECONDS, **known
        )
        self.failures = Counter("heedful_failures", "Inputs that a model failed on.", ["model"], **known)
        self.ready = Gauge(
            "heedful_ready", "1 when all models are warm and the server is not about to stop.", **known
        )

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self.registry)
