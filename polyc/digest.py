"""SHA-256 without OpenSSL, which `hashlib` loads: that takes longer than all digests of a small program."""

try:
    from _sha2 import sha256
except ImportError:  # before Python 3.12
    try:
        from _sha256 import sha256
    except ImportError:  # an interpreter built without
        from hashlib import sha256

__all__ = ["sha256"]
