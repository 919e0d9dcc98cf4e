"""The public interface: operators and the functions that make them.  `polyc` itself has the names."""
