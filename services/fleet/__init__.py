"""Pure code shared by every program: the fold, the views, the catalog, settings. No IO, no clock."""
