;; attack: `classify` traps.
;; expect: classify -> trap

;; in classify:
unreachable
