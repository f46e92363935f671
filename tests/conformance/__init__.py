"""What holds of every target; `docs/doors/target.md` says how a plug-in runs it on its own."""
