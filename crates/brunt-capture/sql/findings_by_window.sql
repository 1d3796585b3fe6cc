-- Findings of each window, oldest first.
SELECT window_from, kind, finding, advice FROM window_findings ORDER BY window_from, kind, finding
