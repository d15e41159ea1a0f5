<?php

namespace Journal\Snapshot;

use Doctrine\DBAL\Connection;
use Doctrine\Persistence\ManagerRegistry;
use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\ErrorHandler\ErrorHandler;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Routing\RouterInterface;
use Symfony\Component\Security\Core\Authentication\Token\Storage\TokenStorageInterface;

/**
 * Brings a booted kernel into the state that is worth a snapshot: what a request builds is built, and nothing of a request
 * is left.
 *
 * The requests are made up, so no visitor's data can get into the snapshot. Call settle() last, and snapshot_state() next.
 */
final class Warmup
{
    /** Reserved by RFC 2606: where this name shows up in a page, the warm-up has leaked. */
    private const HOST = 'http://warm-up.invalid';

    /** @var list<\WeakReference<Request>> */
    private array $requests = [];

    public function __construct(
        private readonly KernelInterface $kernel,
        private readonly RequestStack $requestStack,
        private readonly TokenStorageInterface $tokenStorage,
        private readonly RouterInterface $router,
        private readonly ManagerRegistry $doctrine,
    ) {
    }

    /**
     * Handles a made-up request and throws the answer away.
     *
     * @param array<string, string> $server as in $_SERVER, such as PHP_AUTH_USER
     *
     * @throws \LogicException if the page does not answer with status 200
     */
    public function visit(string $path, array $server = []): self
    {
        $request = Request::create(self::HOST.$path, 'GET', [], [], [], $server);
        $this->requests[] = \WeakReference::create($request);
        $response = $this->kernel->handle($request);
        if (Response::HTTP_OK !== $response->getStatusCode()) {
            throw new \LogicException("The warm-up of $path was answered with status {$response->getStatusCode()}.");
        }
        if ($this->kernel instanceof TerminableInterface) {
            $this->kernel->terminate($request, $response);
        }

        return $this;
    }

    /** Makes every public service. What is private is made where a page needs it. */
    public function initializeServices(): self
    {
        $container = $this->kernel->getContainer();
        \assert($container instanceof Container);
        foreach ($container->getServiceIds() as $id) {
            try {
                $container->get($id, Container::NULL_ON_INVALID_REFERENCE);
            } catch (\Throwable) {
                // Some cannot be made outside of a console command or of the kernel's build.
            }
        }

        return $this;
    }

    /**
     * Removes what belongs to the requests so far: entities, tokens, the connection to the database.
     *
     * @throws \LogicException if something of them is still there: better no snapshot than one that shows it to everybody
     */
    public function settle(): void
    {
        // A kernel that has handled a request and boots again resets the services that asked for it (tag kernel.reset).
        $this->kernel->boot();
        $this->tokenStorage->setToken(null);
        $this->router->getContext()->fromRequest(Request::create('/'))->setParameters([]);
        $this->resetErrorHandler();
        $connection = $this->closeConnection();

        // Exceptions and closures keep requests alive in cycles.
        gc_collect_cycles();
        if (null !== $this->requestStack->getCurrentRequest() || null !== $this->tokenStorage->getToken()) {
            throw new \LogicException('A request of the warm-up is still the current one.');
        }
        foreach ($this->requests as $request) {
            if (null !== $request->get()) {
                throw new \LogicException("Something keeps the warm-up's request {$request->get()->getPathInfo()}.");
            }
        }
        if (null !== $connection?->get()) {
            throw new \LogicException('Something keeps the connection to the database.');
        }
        $this->requests = [];
    }

    /** Symfony's error handler keeps the last request, to answer it when an exception escapes. Every request sets it anew. */
    private function resetErrorHandler(): void
    {
        $handler = set_exception_handler(null);
        restore_exception_handler();
        if (\is_array($handler) && $handler[0] instanceof ErrorHandler) {
            $handler[0]->setExceptionHandler([$handler[0], 'renderException']);
        }
    }

    /**
     * Closes the connection; Doctrine opens another one when it needs it.
     *
     * @return ?\WeakReference<object> the driver's object that must be gone now
     */
    private function closeConnection(): ?\WeakReference
    {
        $connection = $this->doctrine->getConnection();
        \assert($connection instanceof Connection);
        if (!$connection->isConnected()) {
            return null;
        }
        $native = \WeakReference::create($connection->getNativeConnection());
        $connection->close();

        return $native;
    }
}
