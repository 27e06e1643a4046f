;; attack: A stage without a version.
;; expect: load -> version

;; in exports:
(export "pointsman:policy/worker-filter" (instance $score_exported))
