;; attack: `score` traps.
;; expect: score -> trap

;; in score:
unreachable
