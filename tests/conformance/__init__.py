"""What holds of every target; `docs/extending/target.md` says how a plug-in runs it on its own."""
