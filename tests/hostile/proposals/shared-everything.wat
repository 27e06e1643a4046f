;; attack: Uses shared tables, which no policy needs.
;; expect: load -> invalid
;; proposal: SHARED_EVERYTHING_THREADS

;; in core:
(table shared 1 (ref null (shared func)))
